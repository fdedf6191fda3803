"""The one error type for bad input."""

LONGEST = 2000


def _one_line(text: str) -> str:
    """What files and options brought into a message may hold anything: line ends, a terminal's commands, megabytes."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:LONGEST])
    return shown + ("..." if len(text) > LONGEST else "")


class UsageError(SystemExit, ValueError):
    """Bad input: an option, a file or a combination of versions.

    Its text is one line that names the option or file, the rule and the value. It is a ``ValueError`` for people who
    call us from Python, and a ``SystemExit`` so that a command ends with that line on standard error and exit status 1
    where a plain exception would bury it under a traceback.
    """

    def __init__(self, message: str):
        text = message if message.startswith("fairseq_maskplugins: ") else f"fairseq_maskplugins: {message}"
        super().__init__(_one_line(text))

    def __str__(self) -> str:
        return str(self.args[0])
