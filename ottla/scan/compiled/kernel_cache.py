"""Folder of compiled kernels, named after the sources that they were compiled from. shell

Numba writes kernels next to the sources, below NUMBA_CACHE_DIR or below the home. Executors get the code as an archive.
For it numba uses only the home, with a folder per path of the archive. That path differs by application, so each
application would compile, and a container without a home would fail. Here a hash of the package names the folder.
"""

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator

_PACKAGE = Path(__file__).parents[2]
# Folders with kernels, and with constants that are compiled into them.
_SOURCES = ("protocol", "scan", "audit/checks")


class _Files(IndexDataCacheFile):
    """Index of a kernel and its data files, which several processes may write and read at the same time.

    Each file is written under another name and renamed. Numba writes the index first and numbers the data files, so a
    new index names data of older sources until the data is written, or always after a kill. Here the data is written
    first, under a name that is a hash of its sources and types.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write the kernel that was compiled for `key`, and remove kernels that were compiled from other sources."""
        known = self._load_index()
        name = f"{self._prefix}{hashlib.sha256(repr((self._source_stamp, key)).encode()).hexdigest()[:20]}.nbc"
        self._save_data(name, data)
        self._save_index(known | {key: name})
        if not known:
            self._remove_all_but(name)

    @property
    def _prefix(self) -> str:
        return str(self._index_name.removesuffix("nbi"))

    def _remove_all_but(self, name: str) -> None:
        # Another process may be about to use a removed file; it then compiles the kernel again.
        for path in Path(self._cache_path).iterdir():
            if path.name.startswith(self._prefix) and path.suffix == ".nbc" and path.name != name:
                with contextlib.suppress(OSError):
                    path.unlink()


class KernelCache(FunctionCache):
    """Cache for `_cache` of a dispatcher, in a folder that numba finds. Raises RuntimeError if it finds none.

    Numba checks only the kernel's own file for changes. `content` also covers its constants and the helpers it calls.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp(), content()
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)


class _Locator(_CacheLocator):
    """Locator of a folder below NUMBA_CACHE_DIR, the user's cache or the user's folder for temporary files."""

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


class PlacelessKernelCache(KernelCache):
    """Cache for `_cache` of a dispatcher if numba finds no folder. Raises RuntimeError if no folder is writable."""

    _impl_class = _Kernels


@functools.cache
def _folder() -> Path:
    """Return a folder that only this user can write, because its content is executed. Raises OSError."""
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
    """Return a hash of all sources of a kernel: the archive, or the files of kernels and of their constants."""
    archive = next((one for one in (_PACKAGE, *_PACKAGE.parents) if one.is_file()), None)
    digest = hashlib.sha256()
    sources = (path for folder in _SOURCES for path in sorted((_PACKAGE / folder).rglob("*.py")))
    for path in [archive] if archive else sources:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]
