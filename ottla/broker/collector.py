"""Python's cyclic garbage collector, kept from stopping the broker. shell

Objects that survive a full collection are frozen as soon as there are many of them, so the next full collection visits
only newer ones. `docs/decisions/collector.md` has the reasons, and what is never freed.
"""

import gc
from typing import Final

FREEZE_ABOVE: Final = 10_000
"""The number of objects that a full collection may leave to the next one."""
THRESHOLDS: Final = (700, 10, 1)
"""Python's own thresholds except the last. A full collection visits the objects that the previous one left and at most
some 15,000 newer ones (2 collections of the middle generation, each after 11 of the youngest, each after 700 more
objects than were freed): 3 ms."""

_OLDEST: Final = 2


class Collector:
    """The collector policy of this process. Several brokers in one process share its effect."""

    def __init__(self) -> None:
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Freeze the objects that the start has made, and freeze again after each full collection that leaves many."""
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.enable()
        # Not collected before: of the objects that a start makes, 1 % are garbage, and a visit of all takes 20 ms.
        gc.freeze()
        # The next full collection starts when a quarter of the objects of this one are new: keep that number small.
        gc.collect()
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Restore the thresholds and unfreeze all objects."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)
            gc.set_threshold(*self._thresholds)
            gc.unfreeze()

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST and len(gc.get_objects(_OLDEST)) > FREEZE_ABOVE:
            gc.freeze()
