"""Deletion of the files of a cache that are not needed, when no query can be reading them any more. shell

A query that does not need a file puts `_unused-NAME` next to it; a query that needs the file removes the mark. So a
query deletes the file if an earlier query has marked it a day before, and no query between them needed it.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from ottla.spark_jobs.cache.names import SEEN, UNUSED, base_offset_of

KEPT_S = 24 * 3600


def take_away(folder: Path, names: Iterable[str], needed: set[str], is_judged: Callable[[int], bool]) -> None:
    """Delete files among `names` in the folder of a partition that have not been `needed` for a day.

    `is_judged`: whether the needed files of the segment with a base offset are known. Raises OSError.
    """
    found = set(names)
    for name in found:
        base = base_offset_of(name)
        mark = folder / f"{UNUSED}{name}"
        if base is None:
            _take_rest(folder / name, found)
        elif name in needed:
            if mark.name in found:
                mark.unlink(missing_ok=True)
        elif is_judged(base):
            if mark.name not in found:
                mark.touch()
            elif _age_s(mark) > KEPT_S:
                (folder / name).unlink(missing_ok=True)
                mark.unlink(missing_ok=True)


def _take_rest(path: Path, found: set[str]) -> None:
    """Delete an incomplete file of a killed query, or the mark of a file that is gone."""
    name = path.name
    is_of_a_file = name.startswith(UNUSED) and name.removeprefix(UNUSED) in found
    if name.startswith("_") and name != SEEN and not is_of_a_file and _age_s(path) > KEPT_S:
        path.unlink(missing_ok=True)


def _age_s(path: Path) -> float:
    with suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime
    return 0
