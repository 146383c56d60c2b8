"""Scripts about configs, partitions, log ends and deletion, for both brokers.

Not here, because Ottla refuses it (INVALID_REQUEST) where Kafka 4.3.1 does not: configs of a broker that are dynamic or
that are unknown, log levels, more partitions for internal topics; an unknown operation (Kafka fails with
UNKNOWN_SERVER_ERROR) and one resource twice in AlterConfigs (Kafka never answers).
"""

from storage_requests import APPEND, BROKER, DELETE, OLD_MS, SET, SUBTRACT, TOPIC


def incremental_changes(desk):
    desk.create("a")
    policy, retention = "cleanup.policy", "retention.ms"
    for version in (0, 1):
        desk.change((TOPIC, "a", (retention, SET, str(version)), (policy, APPEND, "compact")), version=version)
        desk.describe("a", retention, policy)
    desk.change((TOPIC, "a", (policy, SUBTRACT, "delete")))
    desk.describe("a", policy)
    desk.change((TOPIC, "a", (policy, SUBTRACT, "compact"), (retention, DELETE, None)))
    desk.describe("a", policy, retention)
    desk.change((TOPIC, "a", (policy, DELETE, "whatever"), ("no.such.config", DELETE, None)))
    desk.describe("a", policy)
    desk.change((TOPIC, "a", (retention, SET, "777")), validate_only=True)
    desk.describe("a", retention)
    desk.change((TOPIC, "a"))


def incremental_refusals(desk):
    desk.create("a")
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
        desk.change((TOPIC, "a", (name, operation, value)))
    desk.change((TOPIC, "a", ("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")))
    desk.change((TOPIC, "a", ("retention.ms", SET, "1")), (TOPIC, "a", ("retention.ms", SET, "2")))
    desk.change((TOPIC, "a", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")))
    desk.change((TOPIC, "a", ("retention.ms", SET, None), ("cleanup.policy", APPEND, None)))
    desk.change((TOPIC, "nope", ("retention.ms", SET, "1")))
    desk.change((TOPIC, "nope", ("retention.ms", SET, "x")))
    desk.change((TOPIC, "no/pe", ("retention.ms", SET, "1")))
    desk.change((TOPIC, "", ("retention.ms", SET, "1")))
    desk.change(
        (TOPIC, "a", ("retention.ms", SET, "888"), ("no.such.config", SET, "1")),
        (TOPIC, "nope", ("retention.ms", SET, "1")),
    )
    desk.describe("a", "retention.ms", "cleanup.policy", "max.message.bytes")


def resources_that_are_no_topics(desk):
    desk.change((BROKER, "1", ("log.dirs", SET, "x")))
    desk.change((BROKER, "1", ("num.partitions", SET, "3"), ("log.dirs", SET, "x")))
    desk.change((BROKER, "7", ("log.retention.ms", SET, "5")))
    for name in ("x", "-1", "1", ""):
        desk.change((BROKER, name))
    for kind in (0, 3, 77):
        desk.change((kind, "1", ("x", SET, "y")))
        desk.replace((kind, "1", ("x", "y")))
    desk.replace((BROKER, "1", ("log.dirs", "x")))


def replacements(desk):
    desk.create("a", retention_ms="1000", cleanup_policy="compact")
    for version in (0, 1, 2):
        desk.replace((TOPIC, "a", ("segment.ms", f"500{version}")), version=version)
        desk.describe("a", "retention.ms", "cleanup.policy", "segment.ms")
    desk.replace((TOPIC, "a", ("segment.ms", "1")), validate_only=True)
    desk.replace((TOPIC, "a", ("segment.ms", None)))
    desk.replace((TOPIC, "a", ("segment.ms", "0")))
    desk.replace((TOPIC, "a", ("no.such.config", "1")))
    desk.replace((TOPIC, "a", ("segment.ms", "1"), ("segment.ms", "1")))
    desk.replace((TOPIC, "nope"))
    desk.describe("a", "segment.ms")
    desk.replace((TOPIC, "a"))
    desk.describe("a", "segment.ms")


def more_partitions(desk):
    desk.create("a", 2)
    for count in (2, 1, 0, -1):
        desk.add(("a", count))
    desk.add(("a", 9), validate_only=True)
    for version in (0, 1, 2, 3):
        desk.add(("a", 3 + version), version=version)
    desk.add(("a", 7, [[1]]))
    desk.add(("a", 9, [[1]]))
    for assigned in ([[2]], [[1, 1]], [[]], [[1, 2]], []):
        desk.add(("a", 8, assigned))
    desk.add(("nope", 5))
    desk.add(("", 5))
    desk.add(("a", 8), ("a", 9))
    desk.add()


def deleted_records(desk):
    desk.create("a", 2)
    desk.create("b", 1, cleanup_policy="compact")
    desk.produce("a", 10)
    desk.produce("b", 3)
    for version in (0, 1, 2):
        desk.delete(("a", (0, 3)), version=version)
    for offset in (2, 11, -2, 5):
        desk.delete(("a", (0, offset)))
    for timestamp in (-1, -2, -3, -4, -5, -6, 0):
        desk.offsets(("a", (0, timestamp)))
    desk.epoch_ends(("a", (0, 0)))
    desk.delete(("a", (0, -1)))
    for timestamp in (-1, -2, -4, 0):
        desk.offsets(("a", (0, timestamp)))
    desk.produce("a", 1)
    desk.delete(("a", (1, 0), (1, -1), (5, 0)), ("nope", (0, 0)))
    desk.delete(("a", (1, 0), (1, 1)))
    desk.delete(("b", (0, 1)))
    desk.change((TOPIC, "b", ("cleanup.policy", APPEND, "delete")))
    desk.describe("b", "cleanup.policy")
    desk.delete(("b", (0, 1)))
    desk.change((TOPIC, "b", ("cleanup.policy", SET, "")))
    desk.describe("b", "cleanup.policy")
    desk.delete(("b", (0, 2)))
    desk.sizes(("a", 0, 1, 7), ("b", 0))


def log_ends(desk):
    desk.create("a", 2)
    desk.create("b", 1, message_timestamp_type="LogAppendTime")
    # Retention must not take them while the script runs.
    desk.change((TOPIC, "a", ("retention.ms", SET, "-1")))
    desk.describe("a", "retention.ms")
    desk.produce("a", 3, timestamp_ms=OLD_MS - 5_000)
    desk.produce("a", 2, timestamp_ms=OLD_MS - 9_000)
    desk.produce("b", 3)
    for version in range(1, 12):
        for timestamp in (*range(-1, -8, -1), 0, OLD_MS - 5_000, OLD_MS - 4_999):
            desk.offsets(("a", (0, timestamp)), version=version)
    for timestamp in (*range(-1, -8, -1), 5):
        desk.offsets(("a", (1, timestamp)))
        desk.offsets(("b", (0, timestamp)), isolation=1)
    for epoch in (0, 1):
        desk.offsets(("a", (0, -1)), epoch=epoch)
    for replica in (-2, 1):
        desk.offsets(("a", (0, -1)), replica=replica)
    desk.offsets(("a", (0, -1), (0, -2), (1, -1)), ("nope", (0, -1), (0, -9)), ("b", (7, -1), (-1, -1)))


def epoch_ends(desk):
    desk.create("a", 2)
    desk.produce("a", 5)
    for version in (2, 3, 4):
        desk.epoch_ends(("a", (0, 0)), version=version)
    for epoch in (-1, -2, 0, 1, 5):
        desk.epoch_ends(("a", (0, epoch), (1, epoch)))
    for current in (0, 1):
        desk.epoch_ends(("a", (0, 0)), current=current)
    desk.epoch_ends(("nope", (0, 0)), ("a", (9, 0), (0, 0), (0, 0)))
    desk.epoch_ends(("a", (0, 0)), replica=-2)


def log_directory(desk):
    desk.create("a", 2)
    desk.produce("a", 5)
    for version in (1, 2, 3, 4):
        desk.sizes(("a", 0, 1, 7), ("nope", 0), version=version)
    desk.sizes()
    desk.sizes(("a", 0, 0), ("a", 1), ("__cluster_metadata", 0))


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
