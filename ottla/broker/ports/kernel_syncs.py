"""Many fdatasyncs at once, in two system calls: the asynchronous IO of Linux (`io_submit`). shell

A thread per file would take the interpreter's lock twice for each file. Here one call passes all files to the kernel,
which syncs them in parallel and shares the journal's commits between them, and one call waits for all. Each sync
belongs to the descriptor that was passed, so it reports the error of a fdatasync of that descriptor, once.

Source: linux/aio_abi.h, io_submit(2), io_getevents(2). IOCB_CMD_FDSYNC exists since Linux 4.18.
"""

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

AT_ONCE: Final = 64

_FSYNC: Final = 2
_FDSYNC: Final = 3
# "Not available": no such call (or a sandbox refuses it), no such operation, no resources for another context.
_REFUSALS: Final = frozenset((errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL, errno.EAGAIN, errno.ENOMEM))


class _Numbers(NamedTuple):
    setup: int
    destroy: int
    getevents: int
    submit: int


_NUMBERS: Final = {"x86_64": _Numbers(206, 207, 208, 209), "aarch64": _Numbers(0, 1, 4, 2)}


class _Request(ctypes.Structure):
    """struct iocb, little-endian."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size_bytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("event_descriptor", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class KernelSyncs:
    """A context of asynchronous IO, for one thread. `available` is False where the system offers none."""

    __slots__ = ("_call", "_context", "_events", "_numbers", "_pointers", "_requests", "available")

    def __init__(self) -> None:
        numbers = _NUMBERS.get(platform.machine())
        self.available = False
        self._context = ctypes.c_ulong(0)
        if sys.platform != "linux" or numbers is None or sys.maxsize < 1 << 32:
            return
        self._numbers = numbers
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._requests = (_Request * AT_ONCE)()
        self._events = (_Event * AT_ONCE)()
        self._pointers = (ctypes.c_void_p * AT_ONCE)()
        for number, request in enumerate(self._requests):
            request.data = number
            self._pointers[number] = ctypes.addressof(request)
        self.available = self._call(numbers.setup, ctypes.c_long(AT_ONCE), ctypes.byref(self._context)) == 0

    def sync(self, descriptors: Sequence[int], data_only: bool = True) -> tuple[list[int], OSError | None]:
        """Sync at most `AT_ONCE` descriptors. Return those not accepted by the kernel, and the first error of the rest.

        The former exclude descriptors whose sync has failed, because a second sync of them would not fail again.
        """
        for request, descriptor in zip(self._requests, descriptors, strict=False):
            request.descriptor = descriptor
            request.opcode = _FDSYNC if data_only else _FSYNC
        taken, error = 0, None
        while taken < len(descriptors):
            some = self._submit(taken, len(descriptors) - taken)
            if some <= 0:
                break
            error = self._wait(some) or error
            taken += some
        return list(descriptors[taken:]), error

    def _submit(self, first: int, count: int) -> int:
        pointers = ctypes.c_void_p(ctypes.addressof(self._pointers) + first * ctypes.sizeof(ctypes.c_void_p))
        some: int = self._call(self._numbers.submit, self._context, ctypes.c_long(count), pointers)
        if some < 0 and ctypes.get_errno() not in _REFUSALS:
            raise _error(ctypes.get_errno())
        return some

    def _wait(self, count: int) -> OSError | None:
        """Wait until `count` syncs have ended; return the first error."""
        failed = None
        while count:
            least = ctypes.c_long(count)
            some = self._call(self._numbers.getevents, self._context, least, least, self._events, None)
            if some < 0:
                if ctypes.get_errno() == errno.EINTR:
                    continue
                raise self._invalidate(ctypes.get_errno())
            for event in self._events[:some]:
                if event.result < 0:
                    failed = failed or _error(-event.result)
            count -= some
        return failed

    def _invalidate(self, number: int) -> OSError:
        """Mark the context as unusable and return the error: results still to come could belong to later syncs."""
        self.available = False
        return _error(number)

    def close(self) -> None:
        if self.available:
            self.available = False
            self._call(self._numbers.destroy, self._context)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
