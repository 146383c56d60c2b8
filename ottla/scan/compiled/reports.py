"""Reports of compilations, which take seconds. free"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Process:
    """The function of this process to call when a kernel is compiled."""

    on_compile: Callable[[], None] | None = None


@contextmanager
def report_compiling(on_compile: Callable[[], None]) -> Iterator[None]:
    """Call `on_compile` when a kernel is compiled, not when it is loaded."""
    before, _Process.on_compile = _Process.on_compile, on_compile
    try:
        yield
    finally:
        _Process.on_compile = before


def report_compilation() -> None:
    if _Process.on_compile is not None:
        _Process.on_compile()
