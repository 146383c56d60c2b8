"""Compilation of kernels by numba, and their cache on disk. shell"""

import contextlib
import gc
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import event
from numba.extending import intrinsic

from ottla.scan.compiled.kernel_cache import KernelCache, PlacelessKernelCache
from ottla.scan.compiled.reports import report_compilation


def cache_on_disk(function: Callable[..., Any]) -> Any:
    """Return a dispatcher whose compiled kernel is cached on disk, or not cached if no folder is writable.

    The cache is next to the sources if these are files in a writable folder, else where `kernel_cache` finds a folder.
    A kernel is compiled again if any of its sources has changed.

    Without numba's runtime (`_nrt`) a kernel does not count references to arrays; its callers hold them. Counting took
    145 of the 155 ns that a batch cost, because each slice and each argument of a helper is counted.
    """
    compiled = numba.njit(nogil=True, boundscheck=False, _nrt=False)(function)
    # A kernel that calls this one with a constant needs no form of its own for that constant.
    template = compiled.get_call_template
    compiled.get_call_template = lambda args, keywords: template([types.unliteral(one) for one in args], keywords)
    with contextlib.suppress(RuntimeError):
        if Path(inspect.getfile(function)).exists():
            compiled._cache = KernelCache(function)
            return compiled
    # The package is in an archive, or belongs to root while the user has no home, as in a container.
    with contextlib.suppress(RuntimeError):
        compiled._cache = PlacelessKernelCache(function)
    return compiled


def inline(function: Callable[..., Any]) -> Any:
    """Return a dispatcher of a helper that is inlined into its callers."""
    return numba.njit(nogil=True, inline="always", _nrt=False)(function)


def big_endian(size: int, *, is_signed: bool) -> Any:
    """Return a function that loads the integer of `size` bytes at a position of a byte array.

    The function is one load. To combine single bytes costs the compiler as much as the rest of a walk over headers.
    """

    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        buffer, at = signature.args
        data = context.make_array(buffer)(context, builder, arguments[0]).data
        place = builder.gep(data, [context.cast(builder, arguments[1], at, types.intp)])
        integer = builder.load(builder.bitcast(place, ir.IntType(8 * size).as_pointer()), align=1)
        if sys.byteorder == "little":
            integer = builder.bswap(integer)
        if size == 8:
            return integer
        return (builder.sext if is_signed else builder.zext)(integer, ir.IntType(64))

    @intrinsic
    def read(typing_context: Any, buffer: Any, at: Any) -> Any:
        return types.int64(buffer, at), load

    return read


class _Compiling(event.Listener):
    """Listener of numba that reports compilations and pauses garbage collection, which takes a fifth of their time."""

    _depth = 0
    _collects = False

    # Both run under the lock of the compiler.
    def on_start(self, event: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._collects = gc.isenabled()
            gc.disable()
            report_compilation()

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._collects:
            gc.enable()


event.register("numba:compile", _Compiling())
