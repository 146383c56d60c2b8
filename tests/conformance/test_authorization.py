"""Every right in every way on Apache Kafka: what its authorizer says is what ours says, but for what is listed here."""

from contextlib import ExitStack

import pytest
from authorization import ANY, Caller, RemoteBroker, plain, properties
from targets import ApacheKafka, free_port

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.authorization.cells import CELLS
from tests.authorization.grants import ALICE, ways_of
from tests.authorization.rows_by_id import ENTRIES, QUESTIONS, read_rows

UNANSWERED = {"DescribeUserScramCredentials v0: DESCRIBE CLUSTER all"}
"""Whoever lacks the right is left without an answer, because Kafka fails when it makes one."""
ELR = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
ALLOWED = {f"AlterConfigs v{version}: ALTER_CONFIGS CLUSTER of cluster": (E.INVALID_CONFIG, ELR) for version in (0, 2)}
"""What Kafka answers who has the right, where that differs for another reason."""


class SecuredKafka(ApacheKafka):
    """With one more port than others."""

    def __init__(self, directory, everyone):
        self.port = free_port(span=3)
        super().__init__(directory, properties(self.port, everyone), port=self.port)


class NextKafka(SecuredKafka):
    release = "4.4.0"


def is_new(row):
    """Return whether only Kafka 4.4.0 has the version of this request."""
    return (row.api_key, row.version) == (K.TXN_OFFSET_COMMIT, 6)


BY_ENTRIES, EVERYONE, NEXT = (SecuredKafka, False), (SecuredKafka, True), (NextKafka, False)
"""A class, and whether it allows everyone what no entry is about."""


class Remotes:
    """Brokers, of which one runs at a time."""

    def __init__(self, make_folder):
        self._make_folder, self._running = make_folder, None
        self._stop = ExitStack()

    def run(self, broker):
        """Return the broker with this value of BY_ENTRIES, EVERYONE or NEXT. It starts if another one runs."""
        if broker != self._running:
            self.close()
            release, everyone = broker
            started = release(self._make_folder("secured"), everyone).start()
            self._stop.callback(started.stop)
            self._remote = RemoteBroker(started.port, started.port + 2)
            self._stop.callback(self._remote.close)
            self._running = broker
        return self._remote

    def close(self):
        self._stop.close()


@pytest.fixture(scope="module")
def remotes(tmp_path_factory):
    remotes = Remotes(tmp_path_factory.mktemp)
    yield remotes
    remotes.close()


def place(rows, *brokers):
    """Return the rows with each of the brokers whose release has them."""
    return [
        pytest.param(broker, row, id=f"{broker[0].release}, {'everyone' if broker[1] else 'by entries'}, {row.name}")
        for broker in brokers
        for row in rows
        if is_new(row) == (broker is NEXT)
    ]


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize(("broker", "cell"), place(CELLS, BY_ENTRIES, EVERYONE, NEXT))
def test_kafka_allows_requests_only_with_the_required_right(remotes, broker, cell):
    remote = remotes.run(broker)
    ways = [way for way in ways_of(cell) if way.everyone is broker[1]]
    if cell.name in UNANSWERED:
        ways = [way for way in ways if way.expected]
    allowed = ALLOWED.get(cell.name, cell.allowed)
    expected = {way.name: plain(allowed if way.expected else cell.denied) for way in ways}
    assert {way.name: plain(remote.play(cell, way)) for way in ways} == expected


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize(("broker", "question"), place(QUESTIONS, NEXT, BY_ENTRIES))
def test_kafka_shows_in_rows_of_ids_what_the_client_may_see(remotes, broker, question):
    remote = remotes.run(broker)
    reply = remote.ask(question, ALICE, ENTRIES)
    assert read_rows(question, reply, remote.id_of) == question.expected


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_takes_an_entry_without_a_host_and_hangs_up_at_one_of_an_unknown_type(remotes):
    remote = remotes.run(BY_ENTRIES)
    what = {"resource_name": "nobody", "resource_pattern_type": 3, "principal": "User:x", "host": ""}
    says = {"operation": 3, "permission_type": 3}
    made = remote.admin.call(K.CREATE_ACLS, 2, creations=[{"resource_type": 2} | what | says])
    assert [row.error_code for row in made.results] == [E.NONE]
    wanted = ANY | {"resource_name_filter": "nobody"}
    gone = remote.admin.call(K.DELETE_ACLS, 2, filters=[wanted])
    assert [row.host for row in gone.filter_results[0].matching_acls] == [""]
    other = Caller(remote.port)
    with pytest.raises(ConnectionError):
        other.call(K.CREATE_ACLS, 2, creations=[{"resource_type": 0} | what | says])
    other.close()
