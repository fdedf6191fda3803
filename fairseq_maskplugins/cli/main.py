"""``maskplugins COMMAND ...``: a table of commands, each in a module of its own that is imported when it is asked for."""

import argparse
import importlib
import sys
from typing import List, Optional

# command: (module, one line of help). A module has add_arguments(parser) and run(args) -> None or an exit status.
COMMANDS = {
    "correct-embeddings": (
        "fairseq_maskplugins.cli.cli_correct_embeddings",
        "move a pretrained model's embeddings to what its layers saw on average",
    ),
    "fisher": ("fairseq_maskplugins.cli.cli_fisher", "Fisher information and masks for ChildTuning-D"),
    "fill-mask": ("fairseq_maskplugins.cli.cli_fill_mask", "fill <mask> in sentences with a trained model"),
    "show-masks": ("fairseq_maskplugins.cli.cli_show_masks", "print rows of a data directory as they would be masked"),
    "variance": (
        "fairseq_maskplugins.cli.cli_variance",
        "gradient variance of a checkpoint, split into what comes from data and what from masks",
    ),
    "pmi": ("fairseq_maskplugins.cli.cli_pmi", "build a PMI vocabulary, and measure one"),
}


def main(arguments: Optional[List[str]] = None) -> int:
    """Run a command; returns its exit status (0: done, 1: failed, 2: the command line is wrong)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="maskplugins", description="Tools beside fairseq-train: see COMMAND --help.")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (path, summary) in COMMANDS.items():
        sub = subparsers.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in arguments[:1]:  # importing fairseq takes seconds: only for the command that needs it
            module = importlib.import_module(path)
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    return args.run(args) or 0


if __name__ == "__main__":
    sys.exit(main())
