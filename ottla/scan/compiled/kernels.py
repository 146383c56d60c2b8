"""Building blocks of compiled kernels: the decorator, big-endian integers and varints over bytes. pure

Every kernel works on preallocated numpy arrays of one or two dimensions. While its process has little to read, it runs
as plain Python, because compiling takes seconds, and loading a compiled kernel takes as long as reading a small log.
With more to read it is compiled, releases the GIL and is cached on disk. The results are the same.

In Python it gets memory views of the arrays, whose elements are read in half of the time: `array[row, column]` is an
element and `array[row]` a row; only a row or an array of one dimension has slices. Their integers do not overflow.
"""

import dis
import functools
import struct
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
# An int to the caller, an int64 inside a kernel.
Long = Any

F = TypeVar("F", bound=Callable[..., Any])

# In Python this is half a second of work. Loading kernels takes as long, compiling them 4 s.
PLAIN_STEPS = 100_000
_USUAL_BATCH_BYTES = 16 * 1024


class _Process:
    """The number of steps that this process is to take."""

    expected_steps = 0


def expect(steps: int) -> None:
    """Announce work of kernels. Beyond a total of PLAIN_STEPS it pays to compile them.

    A step is 5 us in Python: to walk over a batch, to decode a record, to find a producer.
    """
    _Process.expected_steps += steps


class Forecast:
    """Announces the batches of a piece of a log, which are known only for its begin, before the rest is read."""

    def __init__(self, length: int, size_bytes: int) -> None:
        """`length`: of the piece, in bytes or offsets. At first, batches are expected to be as large as usual."""
        self._length = length
        self._expected = size_bytes // _USUAL_BATCH_BYTES
        self._batches = 0
        expect(self._expected)

    def add(self, batches: int, position: int) -> None:
        """Add batches that end at `position` in the piece, and expect the rest to have as many in the same length."""
        self._batches += batches
        likely = self._batches * self._length // max(position, 1)
        expect(max(likely - self._expected, 0))
        self._expected = max(likely, self._expected)


class Callee:
    """Function that kernels call: Python without numba, else its compiled or inlined form."""

    def __init__(self, plain: Callable[[], Callable[..., Any]], compiled: Callable[[], Callable[..., Any]]) -> None:
        """Take the makers of both forms; each form is made at its first use."""
        self._made: dict[str, Callable[..., Any]] = {}
        self._makers = {"plain": plain, "compiled": compiled}

    def of_kind(self, kind: str) -> Callable[..., Any]:
        if kind not in self._made:
            # Several threads of an audit may need a kernel at the same time; only one compiles it.
            with _making:
                if kind not in self._made:
                    self._made[kind] = self._makers[kind]()
        return self._made[kind]

    def __call__(self, *arguments: Any) -> Any:
        if _Process.expected_steps > PLAIN_STEPS:
            return self.of_kind("compiled")(*arguments)
        # Compiled integers overflow without a warning and are returned as Python integers: do the same here.
        with np.errstate(over="ignore"):
            return _python(self.of_kind("plain")(*map(_view, arguments)))


_making = threading.RLock()


def _calling(function: FunctionType, kind: str) -> Callable[..., Any]:
    """Return a copy of `function` that calls the forms of this kind."""
    names = {code.argval for code in dis.get_instructions(function) if code.opname == "LOAD_GLOBAL"}
    named = {name: function.__globals__.get(name) for name in names}
    called = {name: value.of_kind(kind) for name, value in named.items() if isinstance(value, Callee)}
    made = FunctionType(function.__code__, function.__globals__ | called, function.__name__, function.__defaults__)
    return functools.update_wrapper(made, function)


class _Rows:
    """View of an array of two dimensions."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.shape = array.shape
        self._width = array.shape[1]
        self._items = array.reshape(-1).data

    def __getitem__(self, at: Any) -> Any:
        if type(at) is tuple:
            return self._items[at[0] * self._width + at[1]]
        return self._items[at * self._width : (at + 1) * self._width]

    def __setitem__(self, at: tuple[int, int], value: int) -> None:
        self._items[at[0] * self._width + at[1]] = value


def _view(argument: Any) -> Any:
    if not isinstance(argument, np.ndarray) or not argument.flags.c_contiguous:
        return argument
    return argument.data if argument.ndim == 1 else _Rows(argument)


def _python(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_python, result))
    return result.item() if isinstance(result, np.generic) else result


def kernel(function: F, quick: F | None = None) -> F:
    """Make a kernel of a function that Python and kernels call. The function must not allocate."""
    return _callee(function, lambda compiling: compiling.cache_on_disk, quick)


def inline(function: F, quick: F | None = None) -> F:
    """Inline a helper into the kernels that call it: a call costs more than its work."""
    return _callee(function, lambda compiling: compiling.inline, quick)


def plainly(quick: F, how: Callable[[F, F], F] = kernel) -> Callable[[F], F]:
    """Make a kernel that runs `quick` while kernels are not compiled. `quick` does the same in less time."""
    return lambda function: how(function, quick)


def _callee(function: F, how: Callable[[Any], Callable[..., Any]], quick: F | None) -> F:
    own = cast(FunctionType, function)

    def compile_it() -> Any:
        from ottla.scan.compiled import compiling

        return how(compiling)(_calling(own, "compiled"))

    return cast(F, functools.update_wrapper(Callee(lambda: quick or _calling(own, "plain"), compile_it), function))


def _big_endian(layout: str) -> Callable[[Bytes, Long], Long]:
    """Return a function that reads the integer of this `struct` layout at a position, as an int64."""
    integer = struct.Struct(layout)

    def plain(buffer: Any, at: Long) -> Long:
        return integer.unpack_from(buffer, at)[0]

    def compile_it() -> Any:
        from ottla.scan.compiled import compiling

        return compiling.big_endian(integer.size, is_signed=layout.islower())

    return cast(Callable[[Bytes, Long], Long], Callee(lambda: plain, compile_it))


int16 = _big_endian(">h")
int32 = _big_endian(">i")
int64 = _big_endian(">q")
uint32 = _big_endian(">I")


@inline
def zigzag(byte: Long) -> Long:
    """Return the value of a varint of one byte."""
    return (np.int64(byte) >> 1) ^ -(np.int64(byte) & 1)


def read_varint(buffer: Any, at: Long, end: Long) -> tuple[Long, Long]:
    """Return the result of `varint`, without compiled code."""
    raw = shift = 0
    while at < end and shift < 64:
        byte = buffer[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 2**64 - 1
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, -1


@plainly(read_varint)
def varint(buffer: Bytes, at: Long, end: Long) -> tuple[Long, Long]:
    """Return (value, position after it) of the zig-zag varint at `at`, of at most ten bytes; position -1 if cut short.

    A call costs more than reading a varint of one byte, so hot loops read such varints inline.
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
