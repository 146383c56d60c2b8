"""How numba compiles kernels, and that no process waits longer for it than it must. shell"""

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

from ottla.scan.kernel_cache import KernelCache, PlacelessKernelCache
from ottla.scan.kernels import tell_of_compiling


def kept(function: Callable[..., Any]) -> Any:
    """A dispatcher of a kernel that is kept on disk; nowhere, if nothing can be written at all.

    The cache is beside the sources if these are files and can be written beside, else where `kernel_cache` finds a
    place. What was compiled of other sources is not taken, whichever of them changed.

    Without numba's runtime (`_nrt`) arrays are not reference-counted inside: the callers hold them. Counting took 145
    of the 155 ns that a batch cost, for each slice and each argument of a helper is counted.
    """
    compiled = numba.njit(nogil=True, boundscheck=False, _nrt=False)(function)
    with contextlib.suppress(RuntimeError):
        if Path(inspect.getfile(function)).exists():
            compiled._cache = KernelCache(function)
            return compiled
    # In an archive, or as in a container with a package of root's and a user without a home.
    with contextlib.suppress(RuntimeError):
        compiled._cache = PlacelessKernelCache(function)
    return compiled


def copied(function: Callable[..., Any]) -> Any:
    """A dispatcher of a helper that is copied into whatever calls it."""
    return numba.njit(nogil=True, inline="always", _nrt=False)(function)


def big_endian(size: int, *, is_signed: bool) -> Any:
    """Of a byte array and a place, the integer of so many bytes there: one load, where to put bytes together costs the
    compiler as much as all the rest of a walk over headers.
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
    """Tells of it, and collects no garbage meanwhile: of what a compiler makes little is, and to look takes a fifth."""

    _depth = 0
    _collects = False

    # Both run under the lock of the compiler.
    def on_start(self, event: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._collects = gc.isenabled()
            gc.disable()
            tell_of_compiling()

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._collects:
            gc.enable()


event.register("numba:compile", _Compiling())
