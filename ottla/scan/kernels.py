"""Compiled building blocks of the scan: the decorator, big-endian integers and varints over uint8 arrays. pure

Every kernel works on preallocated numpy arrays, releases the GIL and is cached on disk, so that only the first scan on
a machine pays for the compiler. The cache is beside the sources if these are files and can be written beside, else
where `kernel_cache` finds a place. What was compiled of other sources is not taken, whichever of them changed.
"""

import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
# An int to the caller, an int64 inside a kernel.
Long = Any

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` on first use. It must not allocate.

    Without numba's runtime (`_nrt`) arrays are not reference-counted inside: the callers hold them. Counting took 145
    of the 155 ns that a batch cost, for each slice and each argument of a helper is counted.
    """
    compiled = numba.njit(nogil=True, boundscheck=False, _nrt=False)(function)
    _keep(compiled, function)
    return cast(F, compiled)


def _keep(compiled: Any, function: Callable[..., Any]) -> None:
    """Have `compiled` cached. Nowhere, if nothing can be written at all."""
    from ottla.scan.kernel_cache import KernelCache, PlacelessKernelCache

    with contextlib.suppress(RuntimeError):
        if Path(inspect.getfile(function)).exists():
            compiled._cache = KernelCache(function)
            return
    # In an archive, or as in a container with a package of root's and a user without a home.
    with contextlib.suppress(RuntimeError):
        compiled._cache = PlacelessKernelCache(function)


def inlined(function: F) -> F:
    """A helper that is copied into the kernels that call it: a call costs more than these do."""
    return cast(F, numba.njit(nogil=True, inline="always", _nrt=False)(function))


@inlined
def int16(buffer: Bytes, at: Long) -> Long:
    return np.int64(np.int16((np.int64(buffer[at]) << 8) | np.int64(buffer[at + 1])))


@inlined
def uint32(buffer: Bytes, at: Long) -> Long:
    return (
        (np.int64(buffer[at]) << 24)
        | (np.int64(buffer[at + 1]) << 16)
        | (np.int64(buffer[at + 2]) << 8)
        | np.int64(buffer[at + 3])
    )


@inlined
def int32(buffer: Bytes, at: Long) -> Long:
    return np.int64(np.int32(uint32(buffer, at)))


@inlined
def int64(buffer: Bytes, at: Long) -> Long:
    return (uint32(buffer, at) << 32) | uint32(buffer, at + 4)


@inlined
def zigzag(byte: Long) -> Long:
    """The value of a varint of one byte."""
    return (np.int64(byte) >> 1) ^ -(np.int64(byte) & 1)


@kernel
def varint(buffer: Bytes, at: Long, end: Long) -> tuple[Long, Long]:
    """(value, position behind it) of the zig-zag varint at `at`, of ten bytes at most; position -1 if it is cut.

    A call costs more than a varint of one byte does, so hot loops read those themselves.
    """
    raw = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        # Unsigned indexes spare numba's check for negative ones.
        byte = np.uint64(buffer[np.uint64(at)])
        at += 1
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), at
        shift += np.uint64(7)
        if shift > np.uint64(63):
            break
    return np.int64(0), np.int64(-1)
