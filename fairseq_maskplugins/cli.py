"""``maskplugins COMMAND ...``: the table of commands, ``--user-dir`` and ``--json``. Imports nothing that takes time."""

import argparse
import contextlib
import importlib
import json
import logging
import math
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from .errors import UsageError, one_line

# command: (module, help line). A module has add_arguments(parser), run(args) -> None or an exit status, and maybe EXAMPLE
COMMANDS = {
    "correct-embeddings": ("correct_embeddings.command", "move embeddings to what the layers saw on average"),
    "fisher": ("child_tuning.command", "Fisher information and masks for ChildTuning-D"),
    "export-hf": ("hf.export_command", "write a checkpoint as a folder for Hugging Face transformers"),
    "import-hf": ("hf.import_command", "write such a folder as a fairseq checkpoint and dictionary"),
    "fill-mask": ("fill_mask.command", "fill <mask> in sentences with a trained model"),
    "show-masks": ("show_masks.command", "print sequences of a data directory as they would be masked"),
    "variance": ("variance.command", "split a checkpoint's gradient variance into data and mask terms"),
    "pmi": ("pmi_build.command", "build a PMI vocabulary, and measure one"),
    "doctor": ("doctor", "versions, GPUs, and known conflicts with the fix for each"),
    "completion": ("completion", "print a script for completion in the shell"),
}
STATUS = "exit status: 0 done, 1 failed (one line on standard error says why), 2 the command line is wrong, 130 interrupted"
USER_DIR_HELP = "--user-dir DIR: import a plug-in of your own first, as fairseq-train does."
JSON_HELP = "print one JSON object and nothing else, for scripts; values that are not finite are null"
STDOUT = "-"


def main(arguments: Optional[List[str]] = None) -> int:
    """Run a command; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # text may hold characters that the terminal's encoding does not have
            stream.reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(
        prog="maskplugins", description="Tools beside fairseq-train: see COMMAND --help.", epilog=STATUS
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, summary) in COMMANDS.items():
        chosen = subparsers.add_parser(
            name, help=summary, description=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in arguments[:1]:
            module = load_command(name)
            if not getattr(module, "READS_USER_DIR", False):
                arguments = take_user_dir(arguments)
                chosen.epilog = USER_DIR_HELP
            module.add_arguments(chosen)
            chosen.epilog = "\n".join(filter(None, (getattr(module, "EXAMPLE", None), chosen.epilog)))
            chosen.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    try:
        status = args.run(args) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # head, for example, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def load_command(name: str) -> Any:
    """Import a command's module."""
    return importlib.import_module(f".{COMMANDS[name][0]}", __package__)


class LazyParser(argparse.ArgumentParser):
    """A parser whose arguments are added when it is first used: ``fill`` may import what takes seconds."""

    fill: Optional[Callable[[argparse.ArgumentParser], None]] = None

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        self.add_all()
        return super().parse_known_args(*args, **kwargs)

    def add_all(self) -> None:
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)


def import_plugins() -> None:
    """Import fairseq and register this package with it, for commands that need tasks, criterions or models."""
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)  # it would like tensorboardX
    importlib.import_module(".plugins", __package__)


def split_user_dir(arguments: List[str]) -> Tuple[Optional[str], List[str]]:
    """The value of ``--user-dir``, or None, and the other arguments."""
    parser = argparse.ArgumentParser(prog="maskplugins", add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir")
    known, rest = parser.parse_known_args(arguments)
    return known.user_dir, rest


def take_user_dir(arguments: List[str]) -> List[str]:
    """Import the plug-in that ``--user-dir`` names; returns the other arguments."""
    path, rest = split_user_dir(arguments)
    if path is not None:
        import_user_dir(path)
    return rest


def import_user_dir(path: str) -> None:
    """Import a plug-in as fairseq-train does; it may register maskers, whose options a command then takes.

    Raises:
        UsageError: the folder does not exist, or importing it fails.
    """
    from fairseq.utils import import_user_module

    import_plugins()
    try:
        import_user_module(argparse.Namespace(user_dir=path))
    except UsageError:
        raise
    except Exception as error:  # another author's code may raise anything
        name = os.path.basename(os.path.abspath(path))
        other = getattr(sys.modules.get(name), "__file__", None)
        taken = f"; {name} is imported already from {os.path.dirname(other)}" if other else ""
        raise UsageError(f"--user-dir {path}: can't import it: {type(error).__name__}: {one_line(error, 300)}{taken}")


def check_outputs(outputs: Mapping[str, Optional[str]], *inputs: Optional[str]) -> None:
    """Refuse output files (by option; None and ``"-"`` stand for none) that cannot be written, are given twice, or are one of
    the inputs; before hours of work."""
    taken: Dict[str, str] = {}
    read = {os.path.realpath(path) for path in inputs if path}
    for option, path in outputs.items():
        if path is None or path == STDOUT:
            continue
        place = os.path.realpath(path)
        if not path or os.path.isdir(path):
            raise UsageError(f"{option} must name a file, got {path!r}")
        if not os.path.isdir(os.path.dirname(place)):
            raise UsageError(f"{option} {path}: the folder {os.path.dirname(place)} does not exist")
        if place in taken:
            raise UsageError(f"{taken[place]} and {option} must be two files, got {path} for both")
        if place in read:
            raise UsageError(f"{option} {path}: is one of the input files; give another name")
        taken[place] = option


def add_json_option(parser: Any) -> None:
    """Add ``--json`` to a parser or a group of one."""
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


@contextlib.contextmanager
def reporting(as_json: bool) -> Iterator[Dict[str, Any]]:
    """Yield a dict to fill; at the end of the block print it as one JSON object if ``as_json``.

    The block's own output goes to standard error then. If the block fails, no object is printed.
    """
    report: Dict[str, Any] = {}
    if not as_json:
        yield report
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield report
    print(to_json(report))


def to_json(value: Any) -> str:
    """One line of JSON; NaN and infinities, which JSON does not have, become null."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(main())
