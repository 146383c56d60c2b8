"""How Python's cyclic garbage collector is kept from stopping the broker. shell

A full collection looks at every container object there is: 170 ms with a million transactional ids. Almost all that a
broker holds is freed by its reference count, and never by the collector. So what has survived a full collection is
taken out of its sight (`gc.freeze`) as soon as it is much, and the next one looks at what came since alone. Young
collections go on as ever: cycles that die young (exceptions, mostly) are found.

What is frozen is still freed when its last reference goes. Lost are cycles that were alive when they were frozen and
are dropped later: at most those that are in use at that moment, once per `FREEZE_ABOVE` objects that came to stay.
"""

import gc
from typing import Final

FREEZE_ABOVE: Final = 10_000
"""Objects that a full collection may leave to the next one."""
THRESHOLDS: Final = (700, 10, 1)
"""Python's own, but for the last. A full collection so sees, beside what the one before left, at most some 15,000
objects that came since (2 collections of the middle generation, each after 11 of the youngest, each after 700 more
objects than were freed): 3 ms."""

_OLDEST: Final = 2


class Collector:
    """The policy for this process; several brokers of one process share the effect."""

    def __init__(self) -> None:
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Freeze what the start has made, and watch from here on."""
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.collect()
        gc.freeze()
        # The collector waits until a quarter of what it saw last has come anew: let it have seen little.
        gc.collect()
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Let the collector see everything again."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)
            gc.set_threshold(*self._thresholds)
            gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST and len(gc.get_objects(_OLDEST)) > FREEZE_ABOVE:
            gc.freeze()
