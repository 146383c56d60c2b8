"""A client that sends the largest requests of each API while the other clients work. free

It uses only topics, groups and ids of its own, so it must change nothing for the other clients: their answers are
checked as usual, and no event may be charged too much (`charged.py`).
"""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lab.greedy import GreedyRequest, State, greedy
from lab.simulation.process import Lost, Process, Script
from ottla.broker.api.table import TABLE
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.testkit.in_memory.wire import Request

if TYPE_CHECKING:
    from lab.simulation.world import World

MOST_ENTRIES: Final = 3_000
MOST_BYTES: Final = 100_000
OWN: Final = "greedy-"
"""The prefix of the names of its topics, groups and ids."""
NAMES: Final = 40
REQUESTS: Final = (3, 8)
PIPELINED: Final = 4
_NOT_ALONE: Final = frozenset((ApiKey.UPDATE_FEATURES,))
"""APIs that would change the results of the other clients."""


class Greedy(Process):
    """A client that sends greedy requests, some of them pipelined, and reads the replies."""

    def __init__(self, world: "World", name: str, random: Random) -> None:
        super().__init__(world, name, random)
        self._state = _state()

    def run(self) -> Script:
        for _ in range(self.random.randint(*REQUESTS)):
            ask = self._draw()
            if ask is None:
                continue
            requests = [Request(ask.api_key, ask.version, ask.message())] * self.random.randint(1, PIPELINED)
            try:
                sent = []
                for each in requests:
                    sent.append((yield from self.post(each)))
                for correlation_id in sent:
                    yield from self.reply(correlation_id, timeout_ms=5_000)
            except Lost:
                pass
            self.world.met["greedy requests"] += len(requests)
            yield from self.sleep(self.random.random() * 200)

    def _draw(self) -> GreedyRequest | None:
        """Draw one of the greedy requests of one API, or None if it has none."""
        api = self.random.choice([api for api in TABLE.values() if api.key not in _NOT_ALONE])
        requests: Sequence[GreedyRequest] = list(
            greedy(api.key, api.min_version, api.max_version, self._state, MOST_ENTRIES, MOST_BYTES)
        )
        return self.random.choice(requests) if requests else None


def _state() -> State:
    topics = [f"{OWN}{number}" for number in range(NAMES)]
    small = bytes(build_batch([(b"k", b"v")], timestamp_ms=0))
    large = bytes(build_batch([(None, b"x")] * MOST_ENTRIES, timestamp_ms=0))
    return State(
        topics=topics,
        topic_ids=[UUID(int=number + 1) for number in range(NAMES)],
        groups=[f"{OWN}group-{number}" for number in range(NAMES)],
        transactional_ids=[f"{OWN}id-{number}" for number in range(NAMES)],
        producer_ids=[2**40 + number for number in range(NAMES)],
        timestamp_ms=1,
        batch=small,
        large_batch=large,
    )
