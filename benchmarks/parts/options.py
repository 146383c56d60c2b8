"""Types of the options of benchmarks: without a round or a record there is nothing to measure. pure"""

import argparse
import sys
from collections.abc import Collection


def parse_count(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def parse_amount(text: str) -> float:
    """Return a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def check_chosen(found: Collection[object], only: str) -> None:
    """Exit if the option that chooses by a part of the name has left nothing to measure."""
    if not found:
        print(f"nothing has {only!r} in its name: run without this option to see the names", file=sys.stderr)
        raise SystemExit(2)
