"""Every name at `/metrics`, with its meaning: the only list. frozen

The page has three vocabularies, because people's tools look for names of different origin. `KAFKA_EXPORTER` are the
names of danielqsj/kafka_exporter. `JMX` are the names that jmx_exporter makes of Kafka's own under the rules of Strimzi
(`..._total`) and of Confluent (`...persec`). `OWN` are the names of Ottla alone. `docs/metrics.md` has a row for each.
"""

from typing import Final

from ottla.admin.metrics.exposition import Family


def _gauge(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, "gauge", meaning, labels)


def _counter(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, "counter", meaning, labels)


def _histogram(name: str, meaning: str, *labels: str) -> Family:
    return Family(name, "histogram", meaning, labels)


def _twice(name: str, meaning: str, *labels: str) -> tuple[Family, Family]:
    """Return a counter under both names that jmx_exporter may give to Kafka's `<name>PerSec`."""
    also = Family(f"{name}persec", "untyped", f"{meaning} The same as {name}_total.", labels)
    return _counter(f"{name}_total", meaning, *labels), also


_PLACE = ("topic", "partition")
_GROUP = ("consumergroup", *_PLACE)
_TOPICS = "With a topic: topics that exist. Without: all topics since the start."

# ---- kafka_exporter's

BROKERS: Final = _gauge("kafka_brokers", "Brokers of the cluster.")
BROKER_INFO: Final = _gauge("kafka_broker_info", "The broker's id and its advertised address.", "id", "address")
PARTITIONS: Final = _gauge("kafka_topic_partitions", "Partitions of the topic.", "topic")
CURRENT_OFFSET: Final = _gauge(
    "kafka_topic_partition_current_offset", "The high watermark: the offset after the last visible record.", *_PLACE
)
OLDEST_OFFSET: Final = _gauge("kafka_topic_partition_oldest_offset", "The log start offset.", *_PLACE)
LEADER: Final = _gauge("kafka_topic_partition_leader", "The node id of the leader.", *_PLACE)
REPLICAS: Final = _gauge("kafka_topic_partition_replicas", "Replicas of the partition.", *_PLACE)
IN_SYNC: Final = _gauge("kafka_topic_partition_in_sync_replica", "Replicas that are in sync.", *_PLACE)
PREFERRED: Final = _gauge(
    "kafka_topic_partition_leader_is_preferred", "1 where the leader is the preferred one.", *_PLACE
)
UNDER_REPLICATED: Final = _gauge(
    "kafka_topic_partition_under_replicated_partition", "1 where replicas are missing.", *_PLACE
)
GROUP_MEMBERS: Final = _gauge("kafka_consumergroup_members", "Members of the group.", "consumergroup")
GROUP_OFFSET: Final = _gauge("kafka_consumergroup_current_offset", "The committed offset.", *_GROUP)
GROUP_OFFSET_SUM: Final = _gauge(
    "kafka_consumergroup_current_offset_sum",
    "The committed offsets of all partitions together.",
    "consumergroup",
    "topic",
)
GROUP_LAG: Final = _gauge(
    "kafka_consumergroup_lag", "Records between the committed offset and the high watermark.", *_GROUP
)
GROUP_LAG_SUM: Final = _gauge(
    "kafka_consumergroup_lag_sum", "The lags of all partitions together.", "consumergroup", "topic"
)

# ---- Kafka's own, as jmx_exporter names them

MESSAGES_IN: Final = _twice(
    "kafka_server_brokertopicmetrics_messagesin", f"Records that clients have appended. {_TOPICS}", "topic"
)
BYTES_IN: Final = _twice(
    "kafka_server_brokertopicmetrics_bytesin", f"Bytes of batches that clients have appended. {_TOPICS}", "topic"
)
BYTES_OUT: Final = _twice(
    "kafka_server_brokertopicmetrics_bytesout", f"Bytes of batches that clients have fetched. {_TOPICS}", "topic"
)
PRODUCE_REQUESTS: Final = _twice(
    "kafka_server_brokertopicmetrics_totalproducerequests", "Partitions of the topic in Produce requests.", "topic"
)
FETCH_REQUESTS: Final = _twice(
    "kafka_server_brokertopicmetrics_totalfetchrequests", "Partitions of the topic that were read for Fetch.", "topic"
)
FIFTEEN_MINUTE_RATE: Final = _gauge(
    "kafka_server_BrokerTopicMetrics_FifteenMinuteRate",
    "Bytes per second over about 15 minutes of scrapes; name is BytesInPerSec or BytesOutPerSec. For kafka-ui.",
    "name",
    "topic",
)
LOG_SIZE: Final = _gauge("kafka_log_log_size", "Bytes of the segments of the partition.", *_PLACE)
LOG_START: Final = _gauge("kafka_log_log_logstartoffset", "The log start offset.", *_PLACE)
LOG_END: Final = _gauge("kafka_log_log_logendoffset", "The log end offset.", *_PLACE)
REPLICAS_COUNT: Final = _gauge("kafka_cluster_partition_replicascount", "Replicas of the partition.", *_PLACE)
LEADER_COUNT: Final = _gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.")
PARTITION_COUNT: Final = _gauge("kafka_server_replicamanager_partitioncount", "Partitions of this broker.")
UNDER_REPLICATED_COUNT: Final = _gauge(
    "kafka_server_replicamanager_underreplicatedpartitions", "Partitions with missing replicas: always 0."
)
UNDER_MIN_ISR_COUNT: Final = _gauge(
    "kafka_server_replicamanager_underminisrpartitioncount", "Partitions with too few replicas to be written to."
)
OFFLINE_COUNT: Final = _gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions that can neither be read nor written."
)
ACTIVE_CONTROLLER: Final = _gauge(
    "kafka_controller_kafkacontroller_activecontrollercount", "1: this broker is the controller."
)
TOPIC_COUNT: Final = _gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.")
GLOBAL_PARTITION_COUNT: Final = _gauge(
    "kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster."
)
UNCLEAN_ELECTIONS: Final = _twice(
    "kafka_controller_controllerstats_uncleanleaderelections", "Elections of a replica that was not in sync: always 0."
)
FETCH_SESSIONS: Final = _gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.")
FETCH_SESSION_PARTITIONS: Final = _gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", "Partitions of fetch sessions."
)
FETCH_SESSION_EVICTIONS: Final = _twice(
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions", "Fetch sessions that ended for a new one."
)
BROKER_STATE: Final = _gauge("kafka_server_kafkaserver_brokerstate", "3: the broker runs.")
CONNECTION_COUNT: Final = _gauge(
    "kafka_server_socket_server_metrics_connection_count", "Connections of clients.", "listener"
)
CONNECTION_COUNT_TOO: Final = _gauge(
    "kafka_server_socketservermetrics_connection_count", "Connections of clients.", "listener"
)
_LOGINS: Final = "kafka_server_socket_server_metrics"
LOGINS: Final = {
    "logged_in": _counter(f"{_LOGINS}_successful_authentication_total", "Clients that logged in by SASL.", "listener"),
    "failed": _counter(f"{_LOGINS}_failed_authentication_total", "Logins by SASL that failed.", "listener"),
    "logged_in_again": _counter(
        f"{_LOGINS}_successful_reauthentication_total", "Clients that authenticated again in time.", "listener"
    ),
    "failed_again": _counter(
        f"{_LOGINS}_failed_reauthentication_total", "Clients that failed to authenticate again.", "listener"
    ),
    "expired": _counter(
        f"{_LOGINS}_expired_connections_killed_count",
        "Connections closed because their client did not authenticate again in time.",
        "listener",
    ),
}
"""By the field of `LoginCounts`."""
GROUP_COUNT: Final = _gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Classic groups.")
GROUP_COUNTS: Final = {
    state: _gauge(
        f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.lower()}", f"Classic groups that are {state}."
    )
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
}
_COORDINATOR: Final = "kafka_server_group_coordinator_metrics"
COUNT_BY_PROTOCOL: Final = _gauge(f"{_COORDINATOR}_group_count", "Groups of the protocol.", "protocol")
CONSUMER_GROUP_COUNT: Final = _gauge(
    f"{_COORDINATOR}_consumer_group_count", "Groups of the consumer protocol in the state.", "state"
)
CLASSIC_REBALANCES: Final = _counter(
    f"{_COORDINATOR}_group_completed_rebalance_count", "Rebalances of classic groups that were completed."
)
CONSUMER_REBALANCES: Final = _counter(
    f"{_COORDINATOR}_consumer_group_rebalance_count",
    "Group epochs of the consumer protocol that heartbeats have begun.",
)
REQUESTS: Final = _twice(
    "kafka_network_requestmetrics_requests", "Requests. A Fetch is counted as FetchConsumer too.", "request", "version"
)
ERRORS: Final = _twice(
    "kafka_network_requestmetrics_errors",
    "Errors in replies: one for each row, or for the whole reply.",
    "request",
    "error",
)
REQUEST_TIME: Final = _gauge(
    "kafka_network_requestmetrics_totaltimems",
    "Milliseconds from a request to its reply, waits included, over about the last 5 minutes of scrapes.",
    "request",
    "quantile",
)
HANDLER_IDLE: Final = _gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "The share of time, 0 to 1, in which the event loop was idle, over about the last 5 minutes of scrapes.",
)
NETWORK_IDLE: Final = _gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent", "The same value: one event loop serves both."
)

# ---- Ottla's own: partitions and groups

LAST_STABLE_OFFSET: Final = _gauge(
    "ottla_partition_last_stable_offset", "The last stable offset: where read_committed consumers stop.", *_PLACE
)
STABLE_AGE: Final = _gauge(
    "ottla_partition_last_stable_offset_age_seconds",
    "The time since a scrape first found this last stable offset. Only where it is below the high watermark.",
    *_PLACE,
)
OPEN_IN_PARTITION: Final = _gauge(
    "ottla_partition_open_transactions", "Open transactions in the partition. Only where there are any.", *_PLACE
)
STABLE_LAG: Final = _gauge(
    "ottla_consumergroup_stable_lag",
    "Records between the committed and the last stable offset: those that a read_committed group can read now.",
    *_GROUP,
)
LEFT_OUT: Final = _gauge(
    "ottla_metrics_left_out",
    "Partitions, groups and offsets of groups that have no series, because there are too many.",
    "of",
)

# ---- transactions

TRANSACTIONAL_IDS: Final = _gauge("ottla_transactional_ids", "Transactional ids that are known.")
TRANSACTIONS: Final = _gauge(
    "ottla_transactions", "Transactions that have not ended, by Kafka's name for their state.", "state"
)
OLDEST_OPEN: Final = _gauge(
    "ottla_transaction_oldest_open_seconds", "The age of the oldest open transaction; 0 if none is open."
)
BEGUN: Final = _counter("ottla_transactions_begun_total", "Transactions that were begun.")
ENDED: Final = _counter(
    "ottla_transactions_ended_total", "Transactions whose outcome was decided: commit or abort.", "outcome"
)
TIMED_OUT: Final = _counter(
    "ottla_transactions_timed_out_total", "Transactions that the broker aborted because they timed out."
)
MARKER_PHASE: Final = _histogram(
    "ottla_transaction_marker_phase_seconds", "The time from the durable outcome of a transaction to its last marker."
)
FENCED: Final = _counter("ottla_fenced_requests_total", "Requests that were answered with a fencing error.")
DUPLICATES: Final = _counter(
    "ottla_duplicate_batches_total", "Batches that were in the log already, and acknowledged as duplicates."
)
DIFFERING: Final = _counter(
    "ottla_differing_duplicate_batches_total",
    "Duplicates with other keys, values or headers than the batch in the log.",
)
GAPS: Final = _counter("ottla_sequence_gaps_total", "Batches refused with OUT_OF_ORDER_SEQUENCE_NUMBER.")
REUSED: Final = _counter(
    "ottla_reused_sequences_total",
    "Batches refused because they use sequence numbers of an ended transaction, or follow such a batch.",
)

# ---- the loop, the disk, the process

REQUEST_SECONDS: Final = _histogram(
    "ottla_request_duration_seconds", "The time from a request to its reply, waits included.", "request"
)
WAITS: Final = _counter(
    "ottla_waits_total",
    "Requests that waited: for data, the last stable offset, markers of the previous transaction, or a sync.",
    "cause",
)
WAIT_SECONDS: Final = _counter("ottla_wait_seconds_total", "The time that requests waited.", "cause")
TURNS: Final = _histogram(
    "ottla_loop_turn_seconds", "The duration of a turn of the event loop: an event and the work that follows from it."
)
SYNCS: Final = _histogram(
    "ottla_sync_seconds", "The duration of a sync of a log to the device, where flush.messages asks for it."
)
SYNC_BATCHES: Final = _histogram("ottla_sync_batches", "Batches that one sync covered.")
SYNC_FAILURES: Final = _counter("ottla_sync_failures_total", "Syncs that failed; the log directory is offline then.")
CONNECTIONS: Final = _counter("ottla_connections_accepted_total", "Connections of clients that were accepted.")
THROTTLED: Final = _counter(
    "ottla_throttled_total",
    "Replies with a throttle time, and refused connections, by the quota that was exceeded.",
    "quota",
)
THROTTLE_SECONDS: Final = _counter("ottla_throttle_seconds_total", "The throttle times of these replies.", "quota")
MEMORY: Final = _gauge("ottla_memory_held_bytes", "Memory that requests and replies hold.", "of")
MEMORY_LIMIT: Final = _gauge(
    "ottla_memory_limit_bytes", "The most memory that requests and replies may hold (queued.max.request.bytes).", "of"
)
DISK_BYTES: Final = _gauge(
    "ottla_volume_bytes", "The volume of the log directory: total, and free for the broker.", "of"
)
BUILD: Final = _gauge(
    "ottla_build_info", "Always 1; its labels are the version and the cluster id.", "version", "cluster_id"
)
CPU: Final = _counter("process_cpu_seconds_total", "CPU time of the broker's process.")
RESIDENT: Final = _gauge("process_resident_memory_bytes", "Memory of the broker's process.")
DESCRIPTORS: Final = _gauge("process_open_fds", "File descriptors that are open.")
MOST_DESCRIPTORS: Final = _gauge("process_max_fds", "File descriptors that may be open.")
STARTED: Final = _gauge("process_start_time_seconds", "When the broker was started, in seconds since 1970.")


def families() -> list[Family]:
    """Return all families, in the order above."""
    found: list[Family] = []
    for value in globals().values():
        if isinstance(value, Family):
            found.append(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Family):
            found.extend(value)
        elif value is LOGINS or value is GROUP_COUNTS:
            found.extend(value.values())
    return found
