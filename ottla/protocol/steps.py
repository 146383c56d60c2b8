"""Long work on bytes, cut into steps that the caller drives. pure

A generator of `Steps` yields the microseconds that it has just worked, so that the caller can run other work first, or
a `Work`: a call that releases Python's lock while it runs, so that another thread can run it. The caller sends the
result of the call into the generator, or throws its exception into it.

Measured with cramjam 2.14: its functions release the lock, the methods of its `Compressor` do not.
"""

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

RECORD_US: Final = 1.0
"""One record whose frame is walked."""
BYTE_US: Final = 0.0005
"""One byte that is copied or checked by CRC."""
SHORT_US: Final = 500.0
"""A call that takes no longer is not worth a thread: handing it over and back takes a fifth of this."""
SHORT_BYTES: Final = 128 * 1024
"""Memory that needs no reservation: about as much as a connection has for receiving."""


class Work(NamedTuple):
    """`call` takes about `cost_us`; `memory_bytes` is the most that the generator holds from now on, and the call takes
    `scratch_bytes` more while it runs.

    A call must own the bytes that it reads: the receive buffer of a connection does not outlive the connection.
    """

    call: Callable[[], Any]
    cost_us: float
    memory_bytes: int
    scratch_bytes: int = 0


def is_short(cost_us: float) -> bool:
    """Whether a call of so many microseconds runs in the calling thread."""
    return cost_us <= SHORT_US


Step: TypeAlias = float | Work
Steps: TypeAlias = Generator[Step, Any, T]


def to_the_end(steps: Steps[T]) -> T:
    """Take all steps here and now."""
    answer: Any = None
    try:
        while True:
            step = steps.send(answer)
            answer = None
            while isinstance(step, Work):
                try:
                    answer = step.call()
                except Exception as error:
                    step = steps.throw(error)
                else:
                    break
    except StopIteration as stop:
        result: T = stop.value
        return result
