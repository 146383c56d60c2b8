"""Where compiled kernels are kept when numba finds no place, as on an executor that got the code as an archive. shell

Numba keeps them beside the sources, below NUMBA_CACHE_DIR or below the home. Of an archive it knows the home alone, in
a folder for each path of the archive, which is another one for each application: all would compile, and a container
without a home would fail. Here the folder goes by what the package contains.
"""

import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

_PACKAGE = Path(__file__).parents[1]
# Where there are kernels, and constants that they are made of.
_SOURCES = ("protocol", "scan", "audit/checks")


class _Locator(_CacheLocator):
    """Below NUMBA_CACHE_DIR, the user's cache or a folder of the user's in the one for temporary files."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno
        self._folder = _folder()

    @classmethod
    def from_function(cls, function: Callable[..., Any], path: str) -> "_Locator | None":
        try:
            return cls(function)
        except OSError:
            return None

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return content()

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Kernels(CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class KernelCache(FunctionCache):
    """For `_cache` of a dispatcher. Raises RuntimeError if there is no place at all.

    Numba writes each file under another name and renames it, so that processes may compile the same at once.
    """

    _impl_class = _Kernels


@functools.cache
def _folder() -> Path:
    """Ours alone, for what is read from there is run. Raises OSError."""
    for parent in _parents():
        folder = parent / content()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            found = [path.lstat() for path in (parent, folder)]
        except OSError:
            continue
        if all(stat.S_ISDIR(one.st_mode) and one.st_uid == os.geteuid() for one in found) and not any(
            one.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for one in found
        ):
            return folder
    raise OSError("no folder can be written in")


def _parents() -> Iterator[Path]:
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named) / "ottla-kernels"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    if Path(home).is_absolute():
        yield Path(home) / "ottla-kernels"
    yield Path(tempfile.gettempdir()) / f"ottla-kernels-{os.geteuid()}"


@functools.cache
def content() -> str:
    """A hash of all that a kernel can be made of: the archive, or the sources of kernels and of their constants."""
    archive = next((one for one in (_PACKAGE, *_PACKAGE.parents) if one.is_file()), None)
    digest = hashlib.sha256()
    sources = (path for folder in _SOURCES for path in sorted((_PACKAGE / folder).rglob("*.py")))
    for path in [archive] if archive else sources:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]
