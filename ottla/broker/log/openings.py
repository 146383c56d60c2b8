"""Logs that are loaded in steps before they are opened: a million producers are too many for one step. shell

Loading a log that was closed cleanly does not change it. So it may take many turns, and may be aborted at any step. A
caller that needs the log at once runs the remaining steps.
"""

from collections.abc import Callable, Iterator

from ottla.broker.log.loaded import LoadedLog
from ottla.protocol.steps import Steps, to_the_end


class Openings:
    """Logs whose loading has begun and that are not open yet, by directory."""

    def __init__(self) -> None:
        # The remaining steps, or the loaded log after the last one.
        self._begun: dict[str, Steps[LoadedLog] | LoadedLog] = {}

    def advance(self, directory: str, begin: Callable[[], Steps[LoadedLog]]) -> Iterator[float]:
        """Run the remaining steps, and yield the cost of each (us). Several callers may share them: each runs the next.

        Raises OSError if reading fails; the next call starts from the beginning.
        """
        steps = self._begun.get(directory)
        if steps is None:
            steps = self._begun[directory] = begin()
        while not isinstance(steps, LoadedLog):
            try:
                step = next(steps)
            except StopIteration as stop:
                if stop.value is not None:  # else aborted, failed, or completed by another caller
                    self._begun[directory] = stop.value
                return
            except OSError:
                self._begun.pop(directory, None)
                raise
            else:
                assert isinstance(step, float)
                yield step

    def take(self, directory: str) -> LoadedLog | None:
        """Run the remaining steps and return the log; None if loading has not begun. Raises OSError."""
        begun = self._begun.pop(directory, None)
        return begun if begun is None or isinstance(begun, LoadedLog) else to_the_end(begun)

    def give_up(self, directory: str) -> None:
        """Abort the loading of a log that will not be opened."""
        begun = self._begun.pop(directory, None)
        if isinstance(begun, LoadedLog):
            begun.segments.close()
        elif begun is not None:
            begun.close()

    def give_up_all(self) -> None:
        for directory in list(self._begun):
            self.give_up(directory)
