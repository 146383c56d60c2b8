"""Requests that name topics by id, from a client that may read one topic and describe another; plain data.

Apache Kafka answers so too (`tests/conformance/test_authorization.py`). It does not answer every row of a zero id
(docs/decisions/differences.md), so such a row is alone, and none is in Metadata.
"""

import uuid
from typing import Any, NamedTuple

from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.acls import ResourceType as Type
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.authorization.cell import DOTTED_TOPIC, GROUP, OTHER_TOPIC, TOPIC, TXN, IdOf
from tests.authorization.grants import Entry

ENTRIES = (
    Entry(Op.READ, Type.TOPIC, TOPIC),
    Entry(Op.DESCRIBE, Type.TOPIC, DOTTED_TOPIC),
    Entry(Op.READ, Type.GROUP, GROUP),
    Entry(Op.WRITE, Type.TRANSACTIONAL_ID, TXN),
)
TOPICS = {"read": TOPIC, "seen": DOTTED_TOPIC, "hidden": OTHER_TOPIC}
"""What the client may do with a topic, and its name."""
STRANGE = {"unknown": uuid.UUID(int=77), "zero": uuid.UUID(int=0)}
IDS = {kind: IdOf(topic) for kind, topic in TOPICS.items()} | STRANGE
DENIED = E.TOPIC_AUTHORIZATION_FAILED
NO_ROWS = -1
EXPECTED = {
    K.FETCH: {
        "read": (E.NONE, 3),
        "seen": (DENIED, NO_ROWS),
        "hidden": (DENIED, NO_ROWS),
        "unknown": (E.UNKNOWN_TOPIC_ID, NO_ROWS),
        "zero": (E.UNKNOWN_TOPIC_ID, NO_ROWS),
    },
    K.METADATA: {
        "read": (E.NONE, TOPIC, 2),
        "seen": (E.NONE, DOTTED_TOPIC, 1),
        "hidden": (DENIED, None, 0),
        "unknown": (E.UNKNOWN_TOPIC_ID, None, 0),
    },
    K.TXN_OFFSET_COMMIT: {
        "read": E.INVALID_PRODUCER_ID_MAPPING,
        "seen": DENIED,
        "hidden": DENIED,
        "unknown": E.UNKNOWN_TOPIC_ID,
        "zero": E.UNKNOWN_TOPIC_ID,
    },
}
"""What each row shows: Fetch its high watermark, Metadata its name and the number of its partitions."""


class Question(NamedTuple):
    """A request that names these topics."""

    api_key: K
    version: int
    kinds: tuple[str, ...]
    before = None

    @property
    def name(self) -> str:
        """Name of the test."""
        return f"{self.api_key.title} v{self.version}: {' '.join(self.kinds)}"

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the request."""
        return _FIELDS[self.api_key](self.kinds)

    @property
    def expected(self) -> dict[str, Any]:
        """Expected values of each row."""
        return {kind: EXPECTED[self.api_key][kind] for kind in self.kinds}


def _fetch(kinds):
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000, "log_start_offset": -1}
    row |= {"current_leader_epoch": -1, "last_fetched_epoch": -1}
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1_000, "isolation_level": 0, "rack_id": ""}
    session = {"session_id": 0, "session_epoch": -1, "replica_id": -1, "forgotten_topics_data": []}
    return limits | session | {"topics": [{"topic_id": IDS[kind], "partitions": [row]} for kind in kinds]}


def _metadata(kinds):
    topics = [{"topic_id": IDS[kind], "name": None} for kind in kinds]
    return {"topics": topics, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


def _commit(kinds):
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "", "committed_leader_epoch": -1}
    topics = [{"topic_id": IDS[kind], "partitions": [row]} for kind in kinds]
    client = {"producer_id": 77, "producer_epoch": 0, "generation_id": -1, "member_id": "", "group_instance_id": None}
    return client | {"transactional_id": TXN, "group_id": GROUP, "topics": topics}


_FIELDS = {K.FETCH: _fetch, K.METADATA: _metadata, K.TXN_OFFSET_COMMIT: _commit}


def _questions():
    for api_key, version in (
        (K.FETCH, 13),
        (K.FETCH, 18),
        (K.METADATA, 12),
        (K.METADATA, 13),
        (K.TXN_OFFSET_COMMIT, 6),
    ):
        yield from (Question(api_key, version, (kind,)) for kind in EXPECTED[api_key])
        together = (*TOPICS, "unknown")
        yield Question(api_key, version, together)
        yield Question(api_key, version, together[::-1])


QUESTIONS = tuple(_questions())


def read_rows(question, reply, id_of):
    """Return what each row of the reply shows; `id_of` returns the id of a topic."""
    kinds = {id_of(topic): kind for kind, topic in TOPICS.items()} | {each: kind for kind, each in STRANGE.items()}
    topics = reply.responses if question.api_key is K.FETCH else reply.topics
    return {kinds[topic.topic_id or STRANGE["zero"]]: _READ[question.api_key](topic) for topic in topics}


def _read_fetch(topic):
    (row,) = topic.partitions
    return E(row.error_code), row.high_watermark


def _read_commit(topic):
    (row,) = topic.partitions
    return E(row.error_code)


_READ = {
    K.FETCH: _read_fetch,
    K.METADATA: lambda topic: (E(topic.error_code), topic.name, len(topic.partitions)),
    K.TXN_OFFSET_COMMIT: _read_commit,
}
