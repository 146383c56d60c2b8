"""A broker in memory with the resources that the cells name, and its clients."""

from uuid import UUID

from ottla.broker.security.acl import AclAuthorizer
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord
from tests.api.callers import FEW, batch, commit
from tests.authorization.cell import DOTTED_TOPIC, GROUP, OPEN_TXN, OTHER_TOPIC, TOPIC, TXN, IdOf
from tests.authorization.grants import SUPER_USERS, entries_of
from tests.memory_broker import MemoryBroker

HOST = "10.0.0.1"


def authorizer(way, entries):
    """Return an authorizer with Kafka's rules and these entries."""
    return add_entries(AclAuthorizer(SUPER_USERS, way.everyone), entries)


def add_entries(authorizer, entries):
    """Add the entries to an authorizer without entries, and return it."""
    for number, entry in enumerate(entries):
        where = entry.resource_type, entry.name, entry.pattern, entry.principal, entry.host
        authorizer.add(AccessControlEntryRecord(number.to_bytes(16), *where, entry.operation, entry.permission))
    return authorizer


def furnish(caller, timeout_ms):
    """Create the resources that the cells name, as a super user. `timeout_ms` belongs to the transaction left open."""
    caller.create_topic(TOPIC, 2)
    caller.create_topic(OTHER_TOPIC)
    caller.create_topic(DOTTED_TOPIC)
    for key_type in (0, 1):
        caller.call_when_ready(K.FIND_COORDINATOR, 1, key="anybody", key_type=key_type)
    asked = {"transaction_timeout_ms": timeout_ms, "producer_id": -1, "producer_epoch": -1}
    caller.call_when_ready(K.INIT_PRODUCER_ID, 4, transactional_id=TXN, **asked)
    opened = caller.call_when_ready(K.INIT_PRODUCER_ID, 4, transactional_id=OPEN_TXN, **asked)
    caller.call(
        K.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id=OPEN_TXN,
        v3_and_below_producer_id=opened.producer_id,
        v3_and_below_producer_epoch=opened.producer_epoch,
        v3_and_below_topics=[{"name": name, "partitions": [0]} for name in (TOPIC, OTHER_TOPIC)],
    )
    rows = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch(count=3)}]}]
    caller.call(K.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=rows)
    commit(caller, (TOPIC, 0, 1), group_id=GROUP)


def fill_ids(value, id_of):
    """Return the fields of a request with topic ids in place of `IdOf`."""
    if isinstance(value, IdOf):
        return id_of(value.topic)
    if isinstance(value, dict):
        return {name: fill_ids(field, id_of) for name, field in value.items()}
    return [fill_ids(row, id_of) for row in value] if isinstance(value, list) else value


class GuardedBroker:
    """A broker for all cells: the request of a cell does not change the answers to others."""

    def __init__(self):
        self.broker = MemoryBroker(**FEW, unstable_api_versions_enable=True, transaction_two_phase_commit_enable=True)
        self.parts = self.broker.assembly.broker
        self._clients = {}
        furnish(self.broker, self.parts.config.transaction_max_timeout_ms)

    def play(self, cell, way):
        """Return `cell.read` of the answer; None if the connection was closed instead."""
        replies = self.ask(cell, way.principal, authorizer(way, entries_of(cell, way, HOST)))
        return cell.read(*replies) if replies else None

    def ask(self, cell, principal, authorizer):
        """Return the replies to the cell's request under this authorizer; none if the connection was closed instead."""
        if cell.before is not None:
            key, version, fields = cell.before
            self.broker.call(key, version, **fields)
        client = self._client(principal)
        client.replies.clear()
        self.parts.authorizer = authorizer
        try:
            client.send(cell.api_key, cell.version, **fill_ids(cell.fields, self.id_of))
            self.broker.advance()
        finally:
            self.parts.authorizer = None
        if client.closed:
            del self._clients[principal]
        return client.replies

    def id_of(self, topic):
        """Return the id of the topic."""
        return UUID(bytes=self.parts.cluster.topics[topic].topic_id)

    def _client(self, principal):
        """Return the connection of the principal, which is opened once."""
        if principal not in self._clients:
            self._clients[principal] = self.broker.client(HOST, principal)
        return self._clients[principal]
