"""The shape of a cluster: its brokers, topics and partitions with replicas, requests about one broker."""

from ottla.protocol.api_keys import ApiKey as K
from tests.conformance.several_brokers.steps import (
    BROKERS,
    LEDGER,
    Script,
    ask,
    create,
    create_topic,
    describe,
    produce,
    start,
    stop,
    versions_of,
)

ASSIGNMENTS = {
    "an unknown id": [[1, 9]],
    "an id below zero": [[1, -1]],
    "an id twice": [[1, 1]],
    "four replicas": [[1, 2, 3, 4]],
    "four replicas of three": [[1, 2, 3, 1]],
    "no replica": [[]],
    "different numbers of replicas": [[1, 2], [3]],
    "different numbers, an unknown id": [[1, 2], [9]],
    "the controller": [[100]],
    "as they should be": [[1, 2], [3, 1]],
}
SIZES = {
    "factor 0": (1, 0),
    "factor 3": (1, 3),
    "factor 4": (1, 4),
    "factor -1": (1, -1),
    "factor -2": (1, -2),
    "no partitions": (0, 1),
    "partitions -1": (-1, 1),
    "partitions -2": (-2, 1),
}


def scripts():
    return [*_brokers(), *_topics(), *_partitions(), *_single_brokers()]


def _describe_cluster(at, version, kind=1):
    fields = {"endpoint_type": kind} if version >= 1 else {}
    return ask(at, K.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=False, **fields)


def _brokers():
    def look(*running):
        return [
            *(describe(at, version=version) for version in versions_of(K.METADATA) for at in running),
            *(_describe_cluster(at, version) for version in versions_of(K.DESCRIBE_CLUSTER) for at in running),
        ]

    yield Script(
        "the brokers of a cluster", [create([1, 2, 3], [2]), *look(*BROKERS), stop(2), *look(1, 3), start(2), *look(2)]
    )
    yield Script("DescribeCluster: endpoints", [_describe_cluster(1, 1, kind) for kind in (0, 1, 2, 3)])


def _assign(places, first=0):
    return [{"partition_index": first + index, "broker_ids": ids} for index, ids in enumerate(places)]


def _topics():
    versions = versions_of(K.CREATE_TOPICS)
    for name, places in ASSIGNMENTS.items():
        topics = [f"~v{version}" for version in versions]
        asked = [
            create_topic(topic, -1, -1, _assign(places), at=at, version=version)
            for topic, version, at in zip(topics, versions, (1, 2, 3) * 9, strict=False)
        ]
        tried = create_topic("~tried", -1, -1, _assign(places), validate_only=True)
        yield Script(f"CreateTopics: {name}", [tried, *asked, describe(1, *topics, "~tried")])
    for name, (partitions, factor) in SIZES.items():
        asked = [create_topic(f"~v{version}", partitions, factor, at=2, version=version) for version in versions]
        tried = create_topic("~tried", partitions, factor, validate_only=True)
        yield Script(f"CreateTopics: {name}", [tried, *asked])
    odd = {
        "partitions and assignments": (1, -1, _assign([[1]])),
        "a factor and assignments": (-1, 1, _assign([[1]])),
        "assignments from 1": (-1, -1, _assign([[1]], 1)),
        "assignments with a gap": (-1, -1, [*_assign([[1]]), *_assign([[1]], 2)]),
        "a partition twice": (-1, -1, [*_assign([[1]]), *_assign([[2]])]),
        "a partition below zero": (-1, -1, _assign([[1]], -1)),
    }
    for name, (partitions, factor, assigned) in odd.items():
        yield Script(
            f"CreateTopics: {name}",
            [create_topic(LEDGER, partitions, factor, assigned, version=version) for version in (2, 5, 7)],
        )
    with_stopped = [
        create_topic("~three", 1, 3),
        create_topic("~two", 1, 2),
        create([1, 2, 3], topic="~some"),
        create([2], topic="~only"),
        create([2, 1], topic="~first"),
        describe(1, "~some", "~only", "~first"),
    ]
    yield Script(
        "CreateTopics while a broker is stopped",
        [stop(2), *with_stopped, start(2), describe(1, "~some", "~only", "~first")],
    )


def _grow(count, *places, at=1, version=3, topic=LEDGER, validate_only=False):
    row = {"name": topic, "count": count, "assignments": [{"broker_ids": ids} for ids in places] or None}
    return ask(at, K.CREATE_PARTITIONS, version, topics=[row], timeout_ms=10_000, validate_only=validate_only)


def _partitions():
    refused = {
        "an unknown id": (3, [1, 9]),
        "an id below zero": (3, [1, -1]),
        "an id twice": (3, [1, 1]),
        "no replica": (3, []),
        "fewer replicas": (3, [1]),
        "more replicas": (3, [1, 2, 3]),
        "too few assignments": (4, [1, 2]),
        "too many assignments": (3, [1, 2], [2, 3]),
        "as many partitions": (2, [1, 2]),
        "fewer partitions": (1, [1, 2]),
        "no partitions": (0,),
        "partitions below zero": (-1,),
        "different numbers of replicas": (4, [1, 2], [3]),
    }
    for name, (count, *places) in refused.items():
        asked = [
            _grow(count, *places, at=at, version=version)
            for version in versions_of(K.CREATE_PARTITIONS)
            for at in (1, 2)
        ]
        yield Script(f"CreatePartitions: {name}", [create([1, 2], [2, 3]), *asked, describe(1)])
    grown = [
        _grow(3, [3, 1], validate_only=True),
        describe(1),
        _grow(3, [3, 1]),
        _grow(5, [1, 3], [3, 2], at=3, version=0),
        describe(2),
        produce(3, partition=2),
        produce(1, partition=3),
    ]
    yield Script("CreatePartitions: as they should be", [create([1, 2], [2, 3]), *grown])
    stopped = [_grow(3, [2, 1]), _grow(4, [1, 2]), _grow(5, [2, 3]), describe(1)]
    yield Script(
        "CreatePartitions while a broker is stopped", [create([1, 2], [2, 3]), stop(2), *stopped, start(2), describe(1)]
    )
    yield Script("CreatePartitions: an unknown topic", [_grow(3, [1, 2], topic="~none", at=at) for at in BROKERS])


def _single_brokers():
    def resource(name):
        return {"resource_type": 4, "resource_name": name}

    names = ("", "1", "2", "3", "9", "100", "x")
    described = [
        ask(at, K.DESCRIBE_CONFIGS, version, resources=[resource(name) | {"configuration_keys": ["log.retention.ms"]}])
        for version in versions_of(K.DESCRIBE_CONFIGS)
        for name in names
        for at in (1, 2)
    ]
    yield Script("DescribeConfigs of a broker", described)
    altered = [
        ask(at, K.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource(name) | {"configs": [row]}], validate_only=True)
        for name in names
        for row in [{"name": "log.cleaner.threads", "config_operation": 0, "value": "1"}]
        for at in (1, 2)
    ]
    yield Script("IncrementalAlterConfigs of a broker", altered)
    asked = [
        ask(at, K.DESCRIBE_LOG_DIRS, version, topics=[{"topic": LEDGER, "partitions": [0, 1]}])
        for version in versions_of(K.DESCRIBE_LOG_DIRS)
        for at in BROKERS
    ]
    yield Script("DescribeLogDirs", [create([1, 2], [3]), produce(1), *asked])
