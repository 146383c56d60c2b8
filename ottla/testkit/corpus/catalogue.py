"""Every case of the corpus. free"""

from fnmatch import fnmatchcase
from typing import Final

from ottla.testkit.corpus import simple
from ottla.testkit.corpus.case import Case

CASES: Final[tuple[Case, ...]] = simple.CASES


def cases(glob: str = "*") -> list[Case]:
    """Those whose names match, in the order in which they are best read."""
    return [case for case in CASES if fnmatchcase(case.name, glob)]
