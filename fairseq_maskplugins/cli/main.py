"""``maskplugins COMMAND ...``: a table of commands, each in a module of its own that is imported when it is asked for."""

import argparse
import contextlib
import importlib
import sys
from typing import List, Optional

from ..errors import UsageError
from .arguments import refuse_empty
from .output import write_out
from .start import interruptible
from .user_dir import take_user_dir

# command: (module, one line of help). A module has add_arguments(parser) and run(args) -> None or an exit status.
COMMANDS = {
    "correct-embeddings": (
        "fairseq_maskplugins.cli.cli_correct_embeddings",
        "move a pretrained model's embeddings to what its layers saw on average",
    ),
    "fisher": ("fairseq_maskplugins.cli.cli_fisher", "Fisher information and masks for ChildTuning-D"),
    "export-hf": (
        "fairseq_maskplugins.cli.cli_export_hf",
        "write a checkpoint as a folder for Hugging Face transformers",
    ),
    "import-hf": (
        "fairseq_maskplugins.cli.cli_import_hf",
        "write such a folder as a fairseq checkpoint and dictionary",
    ),
    "fill-mask": ("fairseq_maskplugins.cli.cli_fill_mask", "fill <mask> in sentences with a trained model"),
    "show-masks": ("fairseq_maskplugins.cli.cli_show_masks", "print rows of a data directory as they would be masked"),
    "variance": (
        "fairseq_maskplugins.cli.cli_variance",
        "gradient variance of a checkpoint, split into what comes from data and what from masks",
    ),
    "pmi": ("fairseq_maskplugins.cli.cli_pmi", "build a PMI vocabulary, and measure one"),
    "doctor": ("fairseq_maskplugins.cli.cli_doctor", "versions, GPUs, and known conflicts with the fix for each"),
    "completion": ("fairseq_maskplugins.cli.cli_completion", "print a script for completion in the shell"),
}
# of the commands whose modules have no EXAMPLE
EXAMPLES = {
    "correct-embeddings": """examples:
  maskplugins correct-embeddings checkpoints/checkpoint_best.pt corrected.pt
  maskplugins correct-embeddings model.pt corrected.pt --mask-prob 0.15 --random-token-prob 0.1 --leave-unmasked-prob 0.1
""",
    "show-masks": """examples:
  maskplugins show-masks data-bin --mask-prob 0.4
  maskplugins show-masks data-bin --masker span --bpe sentencepiece --sentencepiece-model sp.model --html masks.html
""",
    "pmi": """examples:
  maskplugins pmi build train.txt --output phrases.txt --size 10000
  maskplugins pmi stats --help
""",
}
STATUS = (
    "exit status: 0 done, 1 failed (one line on standard error says why), 2 the command line is wrong, 130 interrupted"
)
USER_DIR_HELP = "--user-dir DIR: import a plug-in of your own first, as fairseq-train does."


def main(arguments: Optional[List[str]] = None) -> int:
    """Run a command; returns its exit status (0: done, 1: failed, 2: the command line is wrong).

    Called with arguments it leaves interrupts to its caller.
    """
    work = interruptible() if arguments is None else contextlib.nullcontext()
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names and texts may hold what a terminal's encoding does not have
            stream.reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(
        prog="maskplugins", description="Tools beside fairseq-train: see COMMAND --help.", epilog=STATUS
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (path, summary) in COMMANDS.items():
        sub = subparsers.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in arguments[:1]:  # importing fairseq takes seconds: only for the command that needs it
            module = importlib.import_module(path)
            own = getattr(module, "READS_USER_DIR", False)
            if not own:
                arguments = take_user_dir(arguments)
            module.add_arguments(sub)
            parts = [sub.epilog or EXAMPLES.get(name, ""), "" if own else USER_DIR_HELP]
            sub.epilog = "\n".join(part for part in parts if part) or None
            sub.set_defaults(run=module.run)
            chosen = sub
    args = parser.parse_args(arguments)
    refuse_empty(chosen, args)
    with work:
        return write_out(lambda: args.run(args), UsageError) or 0


if __name__ == "__main__":
    sys.exit(main())
