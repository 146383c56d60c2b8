"""Writing of a case's files to disk. shell"""

from pathlib import Path
from typing import NamedTuple

from ottla.testkit.corpus.case import Case, files_of


class Written(NamedTuple):
    """A case that is written to disk."""

    case: str
    files: int
    size_bytes: int


def write_case(case: Case, directory: Path) -> Written:
    """Write `directory`/<name of the case>, which must not exist. Raises OSError on failure."""
    files = files_of(case)
    place = directory / case.name
    place.mkdir(parents=True)
    for path, content in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    return Written(case.name, len(files), sum(map(len, files.values())))
