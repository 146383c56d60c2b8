"""Logs that are loaded in steps before they are opened: a million producers are too many for one step. shell

Loading a log that was closed cleanly does not change it. So it may take many turns, and may be aborted at any step. A
caller that needs the log at once runs the remaining steps.
"""

from collections.abc import Callable, Iterator

from ottla.broker.log.loaded import LoadedLog
from ottla.protocol.steps import Steps, to_the_end


class _Opening:
    """A log that is being loaded. `loaded` is set after the last step."""

    __slots__ = ("loaded", "steps")

    def __init__(self, steps: Steps[LoadedLog]) -> None:
        self.steps = steps
        self.loaded: LoadedLog | None = None

    def give_up(self) -> None:
        self.steps.close()
        if self.loaded is not None:
            self.loaded.segments.close()


class Openings:
    """Logs whose loading has begun and that are not open yet, by directory."""

    def __init__(self) -> None:
        self._begun: dict[str, _Opening] = {}

    def advance(self, directory: str, begin: Callable[[], Steps[LoadedLog]]) -> Iterator[float]:
        """Run the remaining steps, and yield the cost of each (us). Several callers may share them: each runs the next.

        Raises OSError if reading fails; the next call starts from the beginning.
        """
        opening = self._begun.get(directory)
        if opening is None:
            opening = self._begun[directory] = _Opening(begin())
        while opening.loaded is None:
            try:
                step = next(opening.steps)
            except StopIteration as stop:
                if stop.value is None:  # aborted, or failed
                    return
                opening.loaded = stop.value
            except OSError:
                self._begun.pop(directory, None)
                raise
            else:
                assert isinstance(step, float)
                yield step

    def take(self, directory: str) -> LoadedLog | None:
        """Run the remaining steps and return the log; None if loading has not begun. Raises OSError."""
        opening = self._begun.pop(directory, None)
        if opening is None:
            return None
        return opening.loaded or to_the_end(opening.steps)

    def give_up(self, directory: str) -> None:
        """Abort the loading of a log that will not be opened."""
        opening = self._begun.pop(directory, None)
        if opening is not None:
            opening.give_up()

    def give_up_all(self) -> None:
        for directory in list(self._begun):
            self.give_up(directory)
