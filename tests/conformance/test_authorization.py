"""Every right in every way on Apache Kafka: what its authorizer says is what ours says, but for what is listed here."""

import pytest
from authorization import ANY, Caller, RemoteBroker, plain, properties
from targets import ApacheKafka, free_port

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.authorization.cells import CELLS as ALL_CELLS
from tests.authorization.grants import ways_of

CELLS = [cell for cell in ALL_CELLS if (cell.api_key, cell.version) != (K.TXN_OFFSET_COMMIT, 6)]
"""Those of versions that Kafka 4.3.1 has."""
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


@pytest.fixture(scope="module", params=[False, True], ids=["by entries", "everyone"])
def remote(request, tmp_path_factory):
    broker = SecuredKafka(tmp_path_factory.mktemp("secured"), request.param).start()
    remote = RemoteBroker(broker.port, broker.port + 2)
    remote.everyone = request.param
    yield remote
    remote.close()
    broker.stop()


@pytest.mark.conformance
@pytest.mark.maven
@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_kafka_allows_requests_only_with_the_required_right(remote, cell):
    ways = [way for way in ways_of(cell) if way.everyone is remote.everyone]
    if cell.name in UNANSWERED:
        ways = [way for way in ways if way.expected]
    allowed = ALLOWED.get(cell.name, cell.allowed)
    expected = {way.name: plain(allowed if way.expected else cell.denied) for way in ways}
    assert {way.name: plain(remote.play(cell, way)) for way in ways} == expected


@pytest.mark.conformance
@pytest.mark.maven
def test_kafka_takes_an_entry_without_a_host_and_hangs_up_at_one_of_an_unknown_type(remote):
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
