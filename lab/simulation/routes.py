"""The brokers of a client's requests: partitions have leaders, groups and transactional ids coordinators. free

A client asks any broker with Metadata or FindCoordinator, and keeps the answer until a broker refuses a request or a
connection. Then it asks again.
"""

from collections.abc import Callable, Generator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TopicPartition
from ottla.testkit.in_memory.wire import Request, request

if TYPE_CHECKING:
    from lab.simulation.process import Process

NO_EPOCH: Final = -1
RETRY_MS: Final = 20.0
_ELSEWHERE: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    )
)
GROUP: Final = 0
TRANSACTION: Final = 1


class Leader(NamedTuple):
    """The leader of a partition, as the target of a request."""

    topic: str
    partition: int


class Coordinator(NamedTuple):
    """The coordinator of a group or of a transactional id, as the target of a request."""

    key_type: int
    key: str


Target = Leader | Coordinator | None
"""None: any broker."""

_A: Final = ApiKey


def _of_group(message: Any) -> Target:
    return Coordinator(GROUP, message.group_id)


def _of_id(message: Any) -> Target:
    return Coordinator(TRANSACTION, message.transactional_id) if message.transactional_id else None


def _of_offset_fetch(message: Any) -> Target:
    return Coordinator(GROUP, message.groups[0].group_id if message.groups else message.group_id)


_TARGET_OF: Final[Mapping[int, Callable[[Any], Target]]] = {
    _A.PRODUCE: lambda message: Leader(message.topic_data[0].name, message.topic_data[0].partition_data[0].index),
    _A.FETCH: lambda message: Leader(message.topics[0].topic, message.topics[0].partitions[0].partition),
    _A.WRITE_TXN_MARKERS: lambda message: Leader(
        message.markers[0].topics[0].name, message.markers[0].topics[0].partition_indexes[0]
    ),
    _A.INIT_PRODUCER_ID: _of_id,
    _A.ADD_PARTITIONS_TO_TXN: lambda message: Coordinator(TRANSACTION, message.v3_and_below_transactional_id),
    _A.ADD_OFFSETS_TO_TXN: _of_id,
    _A.END_TXN: _of_id,
    _A.TXN_OFFSET_COMMIT: _of_group,
    _A.OFFSET_COMMIT: _of_group,
    _A.OFFSET_FETCH: _of_offset_fetch,
    _A.JOIN_GROUP: _of_group,
    _A.SYNC_GROUP: _of_group,
    _A.HEARTBEAT: _of_group,
    _A.LEAVE_GROUP: _of_group,
    _A.CONSUMER_GROUP_HEARTBEAT: _of_group,
}


def _error_of_row(message: Any) -> int:
    return int(message.topics[0].partitions[0].error_code) if message.topics else 0


def _error_of_addition(message: Any) -> int:
    return int(message.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _error_of_offsets(message: Any) -> int:
    return int(message.groups[0].error_code if message.groups else message.error_code)


def _error_of_marker(message: Any) -> int:
    return int(message.markers[0].topics[0].partitions[0].error_code)


_ERROR_OF: Final[Mapping[int, Callable[[Any], int]]] = {
    _A.PRODUCE: lambda message: int(message.responses[0].partition_responses[0].error_code),
    _A.FETCH: lambda message: int(message.responses[0].partitions[0].error_code),
    _A.WRITE_TXN_MARKERS: _error_of_marker,
    _A.ADD_PARTITIONS_TO_TXN: _error_of_addition,
    _A.TXN_OFFSET_COMMIT: _error_of_row,
    _A.OFFSET_COMMIT: _error_of_row,
    _A.OFFSET_FETCH: _error_of_offsets,
}
"""The first error of an answer; other answers with a target have an `error_code`."""


class Routes:
    """The brokers that one client knows. A broker has the number of its id, less that of the first one."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._known: dict[Target, int] = {}
        self._epochs: dict[TopicPartition, int] = {}

    def epoch_of(self, place: TopicPartition) -> int:
        """Return the leader epoch of a partition that the client knows, NO_EPOCH if it knows none."""
        return self._epochs.get(place, NO_EPOCH)

    def find(self, asked: Request) -> Generator[Any, Any, int]:
        """Return the broker of a request. Ask one broker after the other until one knows it."""
        target = _target_of(asked)
        while target not in self._known:
            yield from self._ask(target)
        return self._known[target]

    def last(self, asked: Request) -> int:
        """Return the broker that a request was sent to last, or the first one."""
        return self._known.get(_target_of(asked), 0)

    def forget_broker(self, broker: int) -> None:
        """Forget everything that leads to a broker, which refuses connections."""
        self._process.world.met["connections refused"] += self._process.world.assembly is not None
        self._known = {target: each for target, each in self._known.items() if each != broker}

    def on_answer(self, asked: Request, message: Any) -> None:
        """Forget the target of a request if another broker must be asked."""
        target = _target_of(asked)
        if target is None:
            return
        error = int(_ERROR_OF.get(asked.api_key, _error_of)(message))
        if error in _ELSEWHERE:
            self._process.world.met[f"answers {ErrorCode(error).name}"] += 1
            self._known.pop(target, None)

    def _ask(self, target: Target) -> Generator[Any, Any, None]:
        process = self._process
        broker = process.random.randrange(process.world.profile.brokers)
        link = process.connect(broker)
        if target is None and link is not None:
            self._known[None] = broker
        elif link is not None and target is not None:
            yield from self._ask_on(link, target)
        if target not in self._known:
            yield from process.sleep(RETRY_MS)

    def _ask_on(self, link: Any, target: Leader | Coordinator) -> Generator[Any, Any, None]:
        process = self._process
        answer = yield from process.ask(link, _question(target))
        if answer is None:
            return
        first_id = process.world.first_id
        if isinstance(target, Coordinator):
            if not answer.error_code:
                self._known[target] = answer.node_id - first_id
            return
        for row in answer.topics[0].partitions:
            if row.leader_id >= first_id:
                self._known[Leader(target.topic, row.partition_index)] = row.leader_id - first_id
                self._epochs[target.topic, row.partition_index] = row.leader_epoch


def _target_of(asked: Request) -> Target:
    find = _TARGET_OF.get(asked.api_key)
    return None if find is None else find(asked.message)


def _error_of(message: Any) -> int:
    return int(message.error_code)


@lru_cache(maxsize=256)
def _question(target: Leader | Coordinator) -> Request:
    if isinstance(target, Coordinator):
        return request(_A.FIND_COORDINATOR, 2, key=target.key, key_type=target.key_type)
    return request(_A.METADATA, 9, topics=[{"name": target.topic}], allow_auto_topic_creation=False)
