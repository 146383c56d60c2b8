"""Requests of administrators: elections, replicas, pages of topics, resources with configs, the quorum, directories."""

from ottla.protocol.api_keys import ApiKey as K
from tests.conformance.several_brokers.steps import (
    BROKERS,
    LEDGER,
    Script,
    ask,
    create,
    describe,
    describe_log_dirs,
    describe_partitions,
    describe_quorum,
    elect,
    list_configs,
    list_reassignments,
    move,
    move_to_dir,
    produce,
    reassign,
    start,
    stop,
    versions_of,
)

ABSENT, OTHER = "~absent", "~other"
METADATA = "__cluster_metadata"
BAD_TARGETS = {
    "no replica": [],
    "an unknown id": [1, 9],
    "an id below zero": [-1],
    "an id twice": [1, 1],
    "the controller": [100],
}


def scripts():
    """Return the scripts for three brokers."""
    return [*_elections(), *_reassignments(), *_unfinished_reassignments(), *_pages()]


def scripts_of_one():
    """Return the scripts for one broker."""
    return [*_one_leader(), *_one_replica(), *_pages_of_one(), *_resources(), *_quorum(), *_directories(), *_cluster()]


def _elections():
    versions = versions_of(K.ELECT_LEADERS)
    moved = [create([1, 2, 3], [2, 3, 1], [3, 1, 2]), move(LEDGER, 2)]
    for version in versions:
        asked = [elect(1, (LEDGER, 0, 1, 9), (ABSENT, 0), version=version), describe(2), elect(3, (LEDGER, 0))]
        yield Script(f"ElectLeaders {version}: the first replica", [*moved, *asked])
    yield Script(
        "ElectLeaders: an unknown type", [*moved, *(elect(1, (LEDGER, 0), kind=kind) for kind in (-1, 2, 127))]
    )
    yield Script(
        "ElectLeaders: a leader that is not the first", [*moved, elect(1, (LEDGER, 0, 1), kind=1), describe(1)]
    )
    yield Script("ElectLeaders: no partition", [*moved, elect(1, (LEDGER,)), elect(2, (ABSENT,), kind=1)])
    stopped = [create([1, 2], [2, 1], [2, 3]), stop(2)]
    rows = (LEDGER, 0, 1, 2)
    yield Script(
        "ElectLeaders while a broker is stopped",
        [*stopped, elect(1, rows), describe(1), start(2), elect(1, rows), describe(1)],
    )
    yield Script("ElectLeaders: unclean, without a replica that runs", [*stopped, elect(1, rows, kind=1), describe(1)])
    last = [create([2, 1]), stop(1), stop(2), start(1), describe(1)]
    yield Script("ElectLeaders: unclean", [*last, elect(1, (LEDGER, 0), kind=1), describe(1), produce(1), start(2)])


def _reassignments():
    placed = [create([1, 2], [2, 3], [3, 1])]
    for version in versions_of(K.ALTER_PARTITION_REASSIGNMENTS):
        for name, target in BAD_TARGETS.items():
            asked = reassign(2, (LEDGER, 0, target), version=version)
            yield Script(f"AlterPartitionReassignments {version}: {name}", [*placed, asked, describe(1)])
        absent = reassign(1, (ABSENT, 0, [1]), (LEDGER, 9, [1]), (LEDGER, -1, None), (LEDGER, 0, None), version=version)
        yield Script(f"AlterPartitionReassignments {version}: nothing to change", [*placed, absent, reassign(3)])
    for name, target in {
        "another order": [2, 1],
        "the same": [1, 2],
        "one more": [1, 2, 3],
        "one less": [1],
        "without the leader": [2],
        "others": [3],
        "two others": [3, 2],
        "all, another leader first": [3, 2, 1],
    }.items():
        changed = [
            produce(1),
            reassign(2, (LEDGER, 0, target)),
            describe(1),
            list_reassignments(3),
            elect(1, (LEDGER, 0)),
            describe(2),
            reassign(1, (LEDGER, 0, None)),
        ]
        yield Script(f"AlterPartitionReassignments: {name}", [*placed, *changed])
    kept = [
        reassign(1, (LEDGER, index, target), may_change_factor=False)
        for index, target in ((0, [1]), (0, [1, 2, 3]), (2, [1, 2]), (2, [3]), (0, [2, 1]))
    ]
    yield Script("AlterPartitionReassignments: as many replicas", [*placed, *kept, describe(1)])
    yield Script("ListPartitionReassignments", [*placed, list_reassignments(1, (LEDGER, 0, 9), (ABSENT, 0))])


def _unfinished_reassignments():
    placed = [create([1], [3]), stop(2)]
    asked = [
        reassign(1, (LEDGER, 0, [2]), (LEDGER, 1, [2, 3])),
        describe(1),
        *(list_reassignments(at, *places) for at in (1, 3) for places in ((), [(LEDGER, 1, 0)], [(LEDGER, 9)])),
    ]
    finished = [start(2), describe(1), list_reassignments(1)]
    yield Script("a replica is added when its broker starts", [*placed, *asked, *finished])
    cancelled = [reassign(1, (LEDGER, 0, None), (LEDGER, 1, None)), describe(1), list_reassignments(3), start(2)]
    yield Script("a change of replicas is cancelled", [*placed, *asked, *cancelled, describe(1)])
    changed = [
        reassign(1, (LEDGER, 0, [3]), (LEDGER, 1, [1])),
        describe(1),
        list_reassignments(1),
        start(2),
        describe(1),
    ]
    yield Script("a change of replicas is changed", [*placed, *asked, *changed])
    refused = [reassign(1, (LEDGER, 0, [1, 2]), may_change_factor=False), list_reassignments(1), start(2)]
    yield Script("as many replicas as after the change", [*placed, *asked, *refused])


def _pages():
    placed = [create([1, 2], [2, 3], [3, 1]), create([1], topic=OTHER)]
    pages = [describe_partitions(at, LEDGER, OTHER, limit=limit) for at in BROKERS for limit in (1, 3, 4)]
    yield Script("DescribeTopicPartitions of three brokers", [*placed, *pages])
    yield Script(
        "DescribeTopicPartitions while a broker is stopped",
        [*placed, stop(2), describe_partitions(1, LEDGER), start(2), describe_partitions(2, LEDGER)],
    )


def _one_leader():
    asked = [
        elect(1, *places, version=version, kind=kind)
        for version in versions_of(K.ELECT_LEADERS)
        for kind in ((0, 1, -1, 2) if version else (0,))
        for places in ([(LEDGER, 0, 1, 7)], [(ABSENT, 0)], [(LEDGER,)])
    ]
    yield Script("ElectLeaders", [create([1], [1]), *asked])


def _one_replica():
    versions = versions_of(K.ALTER_PARTITION_REASSIGNMENTS)
    targets = ([1], None, [], [2], [1, 1], [-1])
    asked = [reassign(1, (LEDGER, 0, target), version=version) for version in versions for target in targets]
    absent = [reassign(1, (ABSENT, 0, [1]), (LEDGER, 9, [1]), version=version) for version in versions]
    kept = [reassign(1, (LEDGER, 0, target), may_change_factor=False) for target in ([1], [], [1, 1])]
    listed = [list_reassignments(1, *places) for places in ((), [(LEDGER, 0, 9)], [(ABSENT, 0)])]
    yield Script("AlterPartitionReassignments", [create([1]), *asked, *absent, *kept, *listed])


def _pages_of_one():
    made = [create([1], [1], [1]), create([1], [1], topic=OTHER)]
    pages = [
        describe_partitions(1, *topics, limit=limit, cursor=cursor)
        for topics in ((LEDGER, OTHER), (OTHER, LEDGER, OTHER), (ABSENT, LEDGER, "no/pe"))
        for limit in (-1, 0, 1, 2, 3, 4, 5, 6, 2**31 - 1)
        for cursor in (None, (LEDGER, 0), (LEDGER, 1), (LEDGER, 3), (LEDGER, 100))
    ]
    hostile = [
        describe_partitions(1, LEDGER, OTHER, cursor=cursor)
        for cursor in ((LEDGER, -1), (ABSENT, 0), ("", 0), ("~zzz", 0), (OTHER, -(2**31)))
    ]
    others = [describe_partitions(1, METADATA, "__transaction_state"), describe_partitions(1, LEDGER, "")]
    yield Script("DescribeTopicPartitions", [*made, *pages, *hostile, *others])


def _resources():
    asked = [list_configs(1, version=0), *(list_configs(1, *kinds) for kinds in ((4,), (8,), (16,), (4, 8, 4), (32,)))]
    unknown = [list_configs(1, *kinds) for kinds in ((0,), (1,), (3,), (4, 64), (-1,))]
    yield Script("ListConfigResources", [*asked, *unknown])


def _quorum():
    asked = [
        describe_quorum(1, *places, version=version)
        for version in versions_of(K.DESCRIBE_QUORUM)
        for places in (
            [(METADATA, 0)],
            [(METADATA, 1)],
            [(METADATA, 0, 1)],
            [(METADATA, 0), (METADATA, 0)],
            [("~none", 0), (METADATA, 0)],
            [(METADATA,)],
            [],
        )
    ]
    yield Script("DescribeQuorum", asked)


def _directories():
    made = [create([1], [1]), produce(1)]
    described = [
        describe_log_dirs(1, (LEDGER, 0, 7), (ABSENT, 0), version=version)
        for version in versions_of(K.DESCRIBE_LOG_DIRS)
    ]
    moved = [
        move_to_dir(1, path, *places, version=version)
        for version in versions_of(K.ALTER_REPLICA_LOG_DIRS)
        for path in ("$L0", "/no/such/directory", "")
        for places in ([(LEDGER, 0, 1)], [(LEDGER, 7), (ABSENT, 0)], [("n" * 249, 0)])
    ]
    yield Script("the log directory", [*made, *described, *moved, describe_log_dirs(1, (LEDGER, 0))])


def _cluster():
    def describe_cluster(version, **fields):
        return ask(1, K.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=False, **fields)

    asked = [describe_cluster(0), *(describe_cluster(1, endpoint_type=kind) for kind in (0, 1, 2, 3))]
    asked += [describe_cluster(2, endpoint_type=1, include_fenced_brokers=fenced) for fenced in (False, True)]
    yield Script("DescribeCluster", asked)
