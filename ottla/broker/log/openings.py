"""Logs that are read in steps before they are opened: a million producers are too many for one. shell

Reading a log that was closed cleanly changes nothing that it says, so it may take as long as it likes and be given up
at any step. Whoever needs the log at once takes the steps that are left.
"""

from collections.abc import Callable, Iterator

from ottla.broker.log.loaded import LoadedLog
from ottla.protocol.steps import Steps, to_the_end


class _Opening:
    """One of them. `loaded` is there behind the last step."""

    __slots__ = ("loaded", "steps")

    def __init__(self, steps: Steps[LoadedLog]) -> None:
        self.steps = steps
        self.loaded: LoadedLog | None = None

    def give_up(self) -> None:
        self.steps.close()
        if self.loaded is not None:
            self.loaded.segments.close()


class Openings:
    """What was begun and is not opened yet, by directory."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun: dict[str, _Opening] = {}

    def advance(self, directory: str, begin: Callable[[], Steps[LoadedLog]]) -> Iterator[float]:
        """Take the steps that are left, and yield what each cost (us). Others may do so too: each takes the next.

        Raises OSError where reading fails; whoever comes next begins anew.
        """
        opening = self._begun.get(directory)
        if opening is None:
            opening = self._begun[directory] = _Opening(begin())
        while opening.loaded is None:
            try:
                step = next(opening.steps)
            except StopIteration as stop:
                if stop.value is None:  # given up, or failed
                    return
                opening.loaded = stop.value
            except OSError:
                self._begun.pop(directory, None)
                raise
            else:
                assert isinstance(step, float)
                yield step

    def take(self, directory: str) -> LoadedLog | None:
        """The log, read to its end; None if nobody has begun. Raises OSError."""
        opening = self._begun.pop(directory, None)
        if opening is None:
            return None
        return opening.loaded or to_the_end(opening.steps)

    def give_up(self, directory: str) -> None:
        """Nobody will open it."""
        opening = self._begun.pop(directory, None)
        if opening is not None:
            opening.give_up()

    def give_up_all(self) -> None:
        for directory in list(self._begun):
            self.give_up(directory)
