"""Loggers, named by modules, and their levels: the levels of log4j as Python has them. free"""

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Final

LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    # Other levels of log4j.
    "TRACE": logging.DEBUG,
    "ALL": logging.DEBUG,
    "OFF": logging.CRITICAL + 1,
}
ROOT: Final = "root"
"""The logger of all modules without a level of their own, as log4j calls it."""


def parse_level(text: str) -> int:
    """Return the level of this name, in upper or lower case. Raises ValueError."""
    number = LEVELS.get(text.upper())
    if number is None:
        raise ValueError(f"{text!r} is not a level: {', '.join(LEVELS)}")
    return number


def parse_levels(given: str) -> dict[str, int]:
    """Parse `INFO,ottla.broker.group=DEBUG` into levels by logger; "" is all others. Raises ValueError with the
    reason."""
    levels = {"": logging.INFO}
    for part in given.split(","):
        name, equals, level = (each.strip() for each in part.rpartition("="))
        number = parse_level(level or part)
        if equals and not name:
            raise ValueError(f"{part!r} names no logger")
        check_logger(name)
        levels[name] = number
    return levels


def check_logger(name: str) -> None:
    """Raise ValueError if there is no such logger. Ottla's loggers are named by modules; others may have any name."""
    if name.partition(".")[0] != "ottla":
        return
    known = "ottla"
    for part in name.split(".")[1:]:
        package = find_spec(known)
        if package is None or find_spec(f"{known}.{part}") is None:
            near = get_close_matches(part, _modules_in(known), 1)
            hint = f"; did you mean {known}.{near[0]}?" if near else ""
            raise ValueError(f"there is no logger {name}{hint}")
        known = f"{known}.{part}"


def level_name(level: int) -> str:
    """Return log4j's name for a level, or its number if it has none."""
    return next((name for name, number in LEVELS.items() if number == level), str(level))


def _modules_in(package: str) -> list[str]:
    from pkgutil import iter_modules  # only needed for a mistyped name

    found = find_spec(package)
    return [each.name for each in iter_modules(found.submodule_search_locations)] if found is not None else []
