"""Tests for a mutant of a module: first those with its name or an import of it, then its package's, then more."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

NEVER = ("tests/conformance", "tests/sim", "tests/crash", "tests/tidy", "tests/mutants", "tests/unit/benchmarks")
"""Too slow, or about the text and not the behavior. Tests that need Spark are too slow as well."""
SPARK = re.compile(r"\bdef test_\w+\([^)]*\bspark\b")


class Room(NamedTuple):
    """Modules below `source`, the tests of these modules, and other tests that use them."""

    source: str
    tests: tuple[str, ...]
    wider: tuple[str, ...] = ()


THROUGH_THE_BROKER = ("tests/unit/broker", "tests/api", "tests/tables", "tests/wire", "tests/unit/cli")
ROOMS = (
    Room("ottla/admin", ("tests/unit/admin",), THROUGH_THE_BROKER),
    Room("ottla/broker/api", ("tests/api", "tests/tables"), THROUGH_THE_BROKER),
    Room("ottla/broker/log", ("tests/unit/broker/log",), THROUGH_THE_BROKER),
    Room("ottla/broker/txn", ("tests/unit/broker/txn", "tests/tables"), THROUGH_THE_BROKER),
    Room(
        "ottla/broker/coordinator",
        ("tests/unit/broker/coordinator", "tests/unit/broker/txn", "tests/unit/broker/group"),
        THROUGH_THE_BROKER,
    ),
    Room("ottla/broker/group", ("tests/unit/broker/group",), THROUGH_THE_BROKER),
    Room("ottla/broker/cluster", ("tests/unit/broker/cluster",), THROUGH_THE_BROKER),
    Room("ottla/broker/config", ("tests/unit/broker/config",), THROUGH_THE_BROKER),
    Room("ottla/broker/ports", ("tests/unit/broker/ports",), THROUGH_THE_BROKER),
    Room("ottla/broker", ("tests/unit/broker",), THROUGH_THE_BROKER),
    Room("ottla/protocol", ("tests/unit/protocol", "tests/wire"), ("tests/unit", "tests/api", "tests/tables")),
    Room("ottla/scan", ("tests/scan",), ("tests/scan", "tests/audit", "tests/spark")),
    Room("ottla/audit", ("tests/audit",), ("tests/scan", "tests/audit", "tests/spark")),
)


def stages(path: str) -> Iterator[list[str]]:
    """Yield the test files for a mutant of `path`, the most relevant first; none twice."""
    room = next(room for room in ROOMS if path.startswith(room.source + "/"))
    seen: set[str] = set()
    for chosen in (_find_by_name(path, room), _importing(path), _in(room.tests), _in(room.wider)):
        fresh = sorted(set(chosen) - seen)
        seen.update(fresh)
        if fresh:
            yield fresh


def _find_by_name(path: str, room: Room) -> list[str]:
    """Return `test_fetch...` for `fetch`, not `test_offset_fetch`; `test_txn_markers` for `markers`."""
    name = rf"{Path(path).stem.rstrip('s')}s?(_|\.)"
    files = [(file, Path(file).name) for file in _in(room.tests)]
    found = [file for file, of in files if re.match(f"test_{name}", of)]
    return found or [file for file, of in files if re.search(f"_{name}", of)]


def _importing(path: str) -> list[str]:
    *packages, stem = Path(path).with_suffix("").parts
    package = ".".join(packages)
    imported = re.compile(rf"(from|import) {package}\.{stem}\b|from {package} import [^\n]*\b{stem}\b")
    return [file for file in _in(("tests",)) if imported.search(_text(file))]


def _in(folders: tuple[str, ...]) -> list[str]:
    return [file for folder in folders for file in _files(folder)]


@cache
def _files(folder: str) -> tuple[str, ...]:
    """Return the quick test files of a folder."""
    found = (str(file) for file in sorted(Path(folder).rglob("test_*.py")))
    return tuple(file for file in found if not file.startswith(NEVER) and not SPARK.search(_text(file)))


@cache
def _text(file: str) -> str:
    return Path(file).read_text()
