"""Names that a test leaves on a broker, and the choice of those that are removed after it. pure

A broker that the test kit starts is emptied. A broker that it controls over an admin port keeps everything that was
there before the first test. Any other Kafka may have other users: only what the kit itself has made is removed.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Final, TypeVar

TOPIC: Final = "topic"
GROUP: Final = "group"
TRANSACTIONAL_ID: Final = "transactional id"
HANGING: Final = "hanging transaction"

Name = TypeVar("Name", bound=Hashable)


class Leftovers:
    """The names that are removed: those that the kit has made (`only_made`), or all except those that are kept."""

    def __init__(self, *, only_made: bool) -> None:
        self._only_made = only_made
        self._made = defaultdict[str, set[Hashable]](set)
        self._kept = defaultdict[str, set[Hashable]](set)

    def note(self, kind: str, name: Hashable) -> None:
        """Note that a test has made or used this name."""
        self._made[kind].add(name)

    def keep(self, kind: str, names: Iterable[Hashable]) -> None:
        """Keep these names from now on."""
        self._kept[kind].update(names)

    def keeps(self, kind: str) -> bool:
        """Return whether any name of this kind is kept."""
        return bool(self._kept[kind])

    def choose_removable(self, kind: str, names: Iterable[Name]) -> list[Name]:
        """Return the names that are removed, of those that exist."""
        if self._only_made:
            return [name for name in names if name in self._made[kind]]
        return [name for name in names if name not in self._kept[kind]]

    def forget_made(self) -> None:
        """Forget the names of the last test."""
        self._made.clear()
