"""Scripts about configs, partitions, log ends and deletion, for both brokers.

Not here, because Ottla refuses it (INVALID_REQUEST) where Kafka 4.3.1 does not: configs of a broker that are dynamic or
that are unknown, log levels, more partitions for internal topics; an unknown operation (Kafka fails with
UNKNOWN_SERVER_ERROR) and one resource twice in AlterConfigs (Kafka never answers).
"""

from storage_requests import APPEND, BROKER, DELETE, OLD_MS, SET, SUBTRACT, TOPIC


def incremental_changes(requests):
    requests.create("a")
    policy, retention = "cleanup.policy", "retention.ms"
    for version in (0, 1):
        requests.change((TOPIC, "a", (retention, SET, str(version)), (policy, APPEND, "compact")), version=version)
        requests.describe("a", retention, policy)
    requests.change((TOPIC, "a", (policy, SUBTRACT, "delete")))
    requests.describe("a", policy)
    requests.change((TOPIC, "a", (policy, SUBTRACT, "compact"), (retention, DELETE, None)))
    requests.describe("a", policy, retention)
    requests.change((TOPIC, "a", (policy, DELETE, "whatever"), ("no.such.config", DELETE, None)))
    requests.describe("a", policy)
    requests.change((TOPIC, "a", (retention, SET, "777")), validate_only=True)
    requests.describe("a", retention)
    requests.change((TOPIC, "a"))


def incremental_refusals(requests):
    requests.create("a")
    for name, operation, value in (
        ("retention.ms", APPEND, "5"),
        ("no.such.config", SUBTRACT, "5"),
        ("no.such.config", SET, "5"),
        ("retention.ms", SET, "x"),
        ("retention.ms", SET, "-2"),
        ("compression.type", SET, "brotli"),
        ("cleanup.policy", SET, "vanish"),
        ("message.timestamp.type", SET, "Never"),
        ("max.message.bytes", SET, "-1"),
    ):
        requests.change((TOPIC, "a", (name, operation, value)))
    requests.change((TOPIC, "a", ("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")))
    requests.change((TOPIC, "a", ("retention.ms", SET, "1")), (TOPIC, "a", ("retention.ms", SET, "2")))
    requests.change((TOPIC, "a", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")))
    requests.change((TOPIC, "a", ("retention.ms", SET, None), ("cleanup.policy", APPEND, None)))
    requests.change((TOPIC, "nope", ("retention.ms", SET, "1")))
    requests.change((TOPIC, "nope", ("retention.ms", SET, "x")))
    requests.change((TOPIC, "no/pe", ("retention.ms", SET, "1")))
    requests.change((TOPIC, "", ("retention.ms", SET, "1")))
    requests.change(
        (TOPIC, "a", ("retention.ms", SET, "888"), ("no.such.config", SET, "1")),
        (TOPIC, "nope", ("retention.ms", SET, "1")),
    )
    requests.describe("a", "retention.ms", "cleanup.policy", "max.message.bytes")


def resources_that_are_no_topics(requests):
    requests.change((BROKER, "1", ("log.dirs", SET, "x")))
    requests.change((BROKER, "1", ("num.partitions", SET, "3"), ("log.dirs", SET, "x")))
    requests.change((BROKER, "7", ("log.retention.ms", SET, "5")))
    for name in ("x", "-1", "1", ""):
        requests.change((BROKER, name))
    for kind in (0, 3, 77):
        requests.change((kind, "1", ("x", SET, "y")))
        requests.replace((kind, "1", ("x", "y")))
    requests.replace((BROKER, "1", ("log.dirs", "x")))


def replacements(requests):
    requests.create("a", retention_ms="1000", cleanup_policy="compact")
    for version in (0, 1, 2):
        requests.replace((TOPIC, "a", ("segment.ms", f"500{version}")), version=version)
        requests.describe("a", "retention.ms", "cleanup.policy", "segment.ms")
    requests.replace((TOPIC, "a", ("segment.ms", "1")), validate_only=True)
    requests.replace((TOPIC, "a", ("segment.ms", None)))
    requests.replace((TOPIC, "a", ("segment.ms", "0")))
    requests.replace((TOPIC, "a", ("no.such.config", "1")))
    requests.replace((TOPIC, "a", ("segment.ms", "1"), ("segment.ms", "1")))
    requests.replace((TOPIC, "nope"))
    requests.describe("a", "segment.ms")
    requests.replace((TOPIC, "a"))
    requests.describe("a", "segment.ms")


def more_partitions(requests):
    requests.create("a", 2)
    for count in (2, 1, 0, -1):
        requests.add(("a", count))
    requests.add(("a", 9), validate_only=True)
    for version in (0, 1, 2, 3):
        requests.add(("a", 3 + version), version=version)
    requests.add(("a", 7, [[1]]))
    requests.add(("a", 9, [[1]]))
    for assigned in ([[2]], [[1, 1]], [[]], [[1, 2]], []):
        requests.add(("a", 8, assigned))
    requests.add(("nope", 5))
    requests.add(("", 5))
    requests.add(("a", 8), ("a", 9))
    requests.add()


def deleted_records(requests):
    requests.create("a", 2)
    requests.create("b", 1, cleanup_policy="compact")
    requests.produce("a", 10)
    requests.produce("b", 3)
    for version in (0, 1, 2):
        requests.delete(("a", (0, 3)), version=version)
    for offset in (2, 11, -2, 5):
        requests.delete(("a", (0, offset)))
    for timestamp in (-1, -2, -3, -4, -5, -6, 0):
        requests.offsets(("a", (0, timestamp)))
    requests.epoch_ends(("a", (0, 0)))
    requests.delete(("a", (0, -1)))
    for timestamp in (-1, -2, -4, 0):
        requests.offsets(("a", (0, timestamp)))
    requests.produce("a", 1)
    requests.delete(("a", (1, 0), (1, -1), (5, 0)), ("nope", (0, 0)))
    requests.delete(("a", (1, 0), (1, 1)))
    requests.delete(("b", (0, 1)))
    requests.change((TOPIC, "b", ("cleanup.policy", APPEND, "delete")))
    requests.describe("b", "cleanup.policy")
    requests.delete(("b", (0, 1)))
    requests.change((TOPIC, "b", ("cleanup.policy", SET, "")))
    requests.describe("b", "cleanup.policy")
    requests.delete(("b", (0, 2)))
    requests.sizes(("a", 0, 1, 7), ("b", 0))


def log_ends(requests):
    requests.create("a", 2)
    requests.create("b", 1, message_timestamp_type="LogAppendTime")
    # Retention must not take them while the script runs.
    requests.change((TOPIC, "a", ("retention.ms", SET, "-1")))
    requests.describe("a", "retention.ms")
    requests.produce("a", 3, timestamp_ms=OLD_MS - 5_000)
    requests.produce("a", 2, timestamp_ms=OLD_MS - 9_000)
    requests.produce("b", 3)
    for version in range(1, 12):
        for timestamp in (*range(-1, -8, -1), 0, OLD_MS - 5_000, OLD_MS - 4_999):
            requests.offsets(("a", (0, timestamp)), version=version)
    for timestamp in (*range(-1, -8, -1), 5):
        requests.offsets(("a", (1, timestamp)))
        requests.offsets(("b", (0, timestamp)), isolation=1)
    for epoch in (0, 1):
        requests.offsets(("a", (0, -1)), epoch=epoch)
    for replica in (-2, 1):
        requests.offsets(("a", (0, -1)), replica=replica)
    requests.offsets(("a", (0, -1), (0, -2), (1, -1)), ("nope", (0, -1), (0, -9)), ("b", (7, -1), (-1, -1)))


def epoch_ends(requests):
    requests.create("a", 2)
    requests.produce("a", 5)
    for version in (2, 3, 4):
        requests.epoch_ends(("a", (0, 0)), version=version)
    for epoch in (-1, -2, 0, 1, 5):
        requests.epoch_ends(("a", (0, epoch), (1, epoch)))
    for current in (0, 1):
        requests.epoch_ends(("a", (0, 0)), current=current)
    requests.epoch_ends(("nope", (0, 0)), ("a", (9, 0), (0, 0), (0, 0)))
    requests.epoch_ends(("a", (0, 0)), replica=-2)


def log_directory(requests):
    requests.create("a", 2)
    requests.produce("a", 5)
    for version in (1, 2, 3, 4):
        requests.sizes(("a", 0, 1, 7), ("nope", 0), version=version)
    requests.sizes()
    requests.sizes(("a", 0, 0), ("a", 1), ("__cluster_metadata", 0))


SCRIPTS = (
    incremental_changes,
    incremental_refusals,
    resources_that_are_no_topics,
    replacements,
    more_partitions,
    deleted_records,
    log_ends,
    epoch_ends,
    log_directory,
)
