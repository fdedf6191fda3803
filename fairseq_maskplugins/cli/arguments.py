"""What holds for the arguments of every command."""

import argparse

from ..errors import UsageError


def refuse_empty(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse empty values: as a file's name one stands for the folder where the command runs, or for no file at all,
    and is most often a variable of the shell that is not set.

    Raises:
        UsageError: names the argument.
    """
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        if isinstance(action, argparse._SubParsersAction):
            refuse_empty(action.choices[value], args)
        elif action.nargs == argparse.REMAINDER:
            continue  # of another parser, which is asked by itself
        elif value != action.default and "" in (value if isinstance(value, list) else [value]):
            name = max(action.option_strings, key=len, default=action.metavar or action.dest.upper())
            raise UsageError(f"{name} must not be empty")
