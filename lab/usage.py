"""The command line of a program whose help text is the docstring of its module. pure"""

import argparse
from typing import Final

KINDS: Final = ("pure", "shell", "frozen", "free")
"""Last words of the first line of a module. They are for developers, not for users of the program."""


def command_line(doc: str | None, prog: str | None = None) -> argparse.ArgumentParser:
    """Return a parser whose `--help` shows the docstring with its line breaks, without the word of KINDS."""
    first, line_end, rest = (doc or "").partition("\n")
    text, _, last = first.rpartition(" ")
    return argparse.ArgumentParser(
        prog=prog,
        description=(text if last in KINDS else first) + line_end + rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
