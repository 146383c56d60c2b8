"""Long work on bytes, cut into steps that the caller drives. pure

A generator of `Steps` yields the microseconds that it has just worked, so that the caller can run other work, or a
`Work`: a call that releases Python's lock while it runs, so that another thread can run it. The caller sends the
result of the call into the generator, or throws its exception into it.

Measured with cramjam 2.14: its functions release the lock, the methods of its `Compressor` do not.
"""

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

RECORD_US: Final = 1.0
"""Cost of walking the frame of one record."""
ENTRY_US: Final = 2.5
"""Cost of decoding one entry of an array of a message into an object with its strings and numbers."""
BYTE_US: Final = 0.0005
"""Cost of copying one byte or computing its CRC."""
SHORT_US: Final = 500.0
"""Longest call that runs in the calling thread: the handover to another thread and back takes a fifth of this."""
SHORT_BYTES: Final = 128 * 1024
"""Most memory without a reservation: about as much as a connection has for receiving."""


class Work(NamedTuple):
    """A call of about `cost_us`. From now on the generator holds at most `memory_bytes`; the call takes `scratch_bytes`
    more while it runs.

    A call must own the bytes that it reads: the receive buffer of a connection does not outlive the connection.
    """

    call: Callable[[], Any]
    cost_us: float
    memory_bytes: int
    scratch_bytes: int = 0


def is_short(cost_us: float) -> bool:
    """Return whether a call of `cost_us` runs in the calling thread."""
    return cost_us <= SHORT_US


Step: TypeAlias = float | Work
Steps: TypeAlias = Generator[Step, Any, T]


def to_the_end(steps: Steps[T]) -> T:
    """Run all steps without a pause and return their result."""
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
