"""Long work on bytes, cut into steps that somebody else drives. pure

A generator of `Steps` yields either how many microseconds it has just worked, so that others may go ahead, or a `Work`:
a call that lets go of Python's lock while it runs, so that it may as well run in another thread. What the call returns
is sent into the generator, what it raises is thrown into it.

Measured with cramjam 2.14: its functions let go of the lock, the methods of its `Compressor` do not.
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
"""Memory that nobody asks for leave to hold, about what a connection has for receiving."""


class Work(NamedTuple):
    """`call` takes about `cost_us`; `memory_bytes` is the most that the generator holds from now on, and the call takes
    `scratch_bytes` beside while it runs.

    What a call reads must be its own: the buffer that a connection received into does not outlive the connection.
    """

    call: Callable[[], Any]
    cost_us: float
    memory_bytes: int
    scratch_bytes: int = 0


def is_short(cost_us: float) -> bool:
    """Whether a call of so many microseconds is done where it is met."""
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
