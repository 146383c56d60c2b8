"""Every case of the corpus. free"""

from fnmatch import fnmatchcase
from typing import Final

from ottla.testkit.corpus import compacted, crashed, epochs, formats, heads, positions, several, simple
from ottla.testkit.corpus.case import Case

CASES: Final[tuple[Case, ...]] = (
    *simple.CASES,
    *several.CASES,
    *epochs.CASES,
    *positions.CASES,
    *heads.CASES,
    *compacted.CASES,
    *crashed.CASES,
    *formats.CASES,
)


def cases(glob: str = "*") -> list[Case]:
    """Return the cases whose names match, in recommended reading order."""
    return [case for case in CASES if fnmatchcase(case.name, glob)]
