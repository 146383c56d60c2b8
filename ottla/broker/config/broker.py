"""The broker's options: each field of `Config` is one, and there is no other list. pure

A key is the field's name with dots. Names, defaults and ranges are Kafka's (`AbstractKafkaConfig.CONFIG_DEF` of 4.3.1);
where Ottla's default differs, the meaning says so. Kafka's other options are ignored (`kafka_names.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.broker.config.listeners import (
    DEFAULT_PROTOCOL_MAP,
    ENCRYPTED,
    LISTENER_RANGE,
    WITH_LOGIN,
    Listener,
    parse_protocol_map,
)
from ottla.broker.config.option import (
    DEFAULT,
    INT32_MAX,
    INT64_MAX,
    Kind,
    Option,
    Origin,
    boolean,
    int32,
    int64,
    options_of,
    password,
    ratio,
    text,
)

CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
GZIP_LEVELS: Final = ("-1", *map(str, range(1, 10)))
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
STORES: Final = ("JKS", "PKCS12", "PEM")
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The broker's configuration; `load_config` makes a checked one, and tests may make one directly."""

    # Who and where.
    node_id: int = int32(1, "The broker's id.", also={"broker.id": 1})
    cluster_id: str = text(
        "",
        "Ottla's own: the id of the cluster that a new data directory begins (Kafka: kafka-storage format -t); one is "
        "drawn if none is given. A directory of another cluster is refused.",
    )
    add_scram: str = password(
        "Ottla's own: the users that a new data directory begins with, as of kafka-storage format --add-scram: "
        "SCRAM-SHA-512=[name=alice,password=alice-secret], and others behind a comma."
    )
    process_roles: str = text("broker", "Must name broker; the controller's work is part of it.", kind=Kind.LIST)
    listeners: tuple[Listener, ...] = text(
        (Listener("PLAINTEXT", "127.0.0.1", 9092),),
        f"Where to listen: {LISTENER_RANGE}. An empty host is every interface (Kafka's default), port 0 a free port. "
        "Names and ports differ; each connection is told the address of the listener it came in on.",
        kind=Kind.LIST,
    )
    advertised_listeners: tuple[Listener, ...] = text(
        (),
        "What clients of a listener, by its name, are told to connect to, if that is not where the broker listens. Who "
        "comes in on a listener that is not in the list is told of no broker.",
        kind=Kind.LIST,
    )
    controller_listener_names: str = text("", "Listeners by these names are left out: there is no controller.")
    listener_security_protocol_map: str = text(
        DEFAULT_PROTOCOL_MAP, "The protocol of each listener, by its name; PLAINTEXT and SSL are served."
    )
    inter_broker_listener_name: str = text(
        "", "The listener for other brokers, of which there are none: it must be one that is advertised."
    )
    log_dirs: str = text("ottla-data", "The data directory, exactly one.", also={"log.dir": 1})

    # Connections.
    socket_request_max_bytes: int = int32(
        104857600, "The largest request; a larger one closes the connection.", at_least=1
    )
    max_request_body_bytes: int = int32(
        1048576,
        "Ottla's own: the largest request other than Produce; a larger one closes the connection.",
        at_least=1024,
    )
    queued_max_request_bytes: int = int64(
        -1,
        "The memory for requests that are received and, here, for replies that are built or not sent, half of it each; "
        "beyond it large ones wait in turn. -1 (Kafka: no limit): an eighth of the machine's, at most 256 MiB.",
        at_least=-1,
    )
    max_connections: int = int32(
        INT32_MAX,
        "The most connections; others wait until one ends. Beyond the descriptors that the logs leave (half of what "
        "the system allows the process, less 96) they are refused, whatever this says.",
    )
    max_connections_per_ip: int = int32(INT32_MAX, "The most connections of one address; others are closed.")
    max_connections_per_ip_overrides: str = text(
        "", "The same for single addresses or host names: HOST:NUMBER, comma separated.", kind=Kind.LIST
    )
    max_connection_creation_rate: int = int32(INT32_MAX, "New connections in a second; others wait.")
    quota_window_num: int = int32(11, "Samples that quotas of clients are measured over.", at_least=1)
    quota_window_size_seconds: int = int32(1, "How long each of them lasts.", at_least=1)
    controller_quota_window_num: int = int32(
        11, "Samples whose partitions may be created or deleted at once, under a controller_mutation_rate.", at_least=1
    )
    controller_quota_window_size_seconds: int = int32(1, "How long each of them lasts.", at_least=1)
    connections_max_idle_ms: int = int64(600000, "A connection idle for longer is closed; -1 keeps it.", at_least=-1)

    # TLS. For one listener alone: listener.name.NAME.ssl...
    ssl_keystore_type: str = text(
        "JKS", "What the keystore is. A file of JKS may be PKCS12, as in Java; JKS itself is not read.", one_of=STORES
    )
    ssl_keystore_location: str = text("", "The file with the broker's key and certificates.")
    ssl_keystore_password: str = password("The password of a PKCS12 keystore.")
    ssl_key_password: str = password("The password of the key in a PEM file or in ssl.keystore.key.")
    ssl_keystore_key: str = password("The broker's key itself, as PEM (PKCS 8), in place of a file.")
    ssl_keystore_certificate_chain: str = password("Its certificates, the broker's first, as PEM.")
    ssl_truststore_type: str = text("JKS", "What the truststore is.", one_of=STORES)
    ssl_truststore_location: str = text("", "The file with the certificates that clients' own are checked by.")
    ssl_truststore_password: str = password("The password of a PKCS12 truststore.")
    ssl_truststore_certificates: str = password("The certificates themselves, as PEM, in place of a file.")
    ssl_client_auth: str = text("none", "Whether clients show a certificate.", one_of=("none", "requested", "required"))
    ssl_principal_mapping_rules: str = text(
        "DEFAULT",
        "Who the owner of a client's certificate is to ACLs and quotas: rules of RULE:PATTERN/REPLACEMENT/[L|U], comma "
        "separated, of which the first that is for the name in the certificate decides. DEFAULT is the whole name.",
    )
    ssl_enabled_protocols: str = text(
        "TLSv1.2,TLSv1.3", "The versions of TLS.", kind=Kind.LIST, one_of=("TLSv1.2", "TLSv1.3")
    )
    ssl_cipher_suites: str = text(
        "",
        "The cipher suites of TLS 1.2, by their names in Java or OpenSSL; empty for OpenSSL's choice. Those of TLS 1.3 "
        "cannot be chosen among: if only such are named, there is no TLS 1.2.",
        kind=Kind.LIST,
    )
    ssl_allow_dn_changes: bool = boolean(False, "Whether another keystore may have a certificate of another name (DN).")
    ssl_allow_san_changes: bool = boolean(
        False, "Whether the certificate of another keystore may lack alternative names (SAN) of the one before it."
    )

    # Who may do what.
    authorizer_class_name: str = text(
        "",
        "What decides who may do what: Kafka's StandardAuthorizer (of org.apache.kafka.metadata.authorizer), by the "
        "ACLs in the metadata. Empty: everybody may do everything.",
    )
    super_users: str = text("", "Who may do everything, whatever ACLs say: User:NAME, semicolon separated.")
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether everybody may do to a resource what they like if no ACL is about it."
    )

    # SASL. For one listener alone: listener.name.NAME..., for one of its mechanisms listener.name.NAME.MECHANISM...
    sasl_enabled_mechanisms: str = text(
        "GSSAPI",
        "How clients of listeners with SASL log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's default "
        "is not served, so this must be set.",
        kind=Kind.LIST,
    )
    sasl_server_max_receive_size: int = int32(524288, "The largest request of a client that has not logged in.")
    sasl_server_callback_handler_class: str = text(
        "", "What checks the tokens of OAUTHBEARER; a class of Kafka's, by its name. For that mechanism alone."
    )
    connections_max_reauth_ms: int = int64(
        0, "How long a client stays logged in: then it logs in anew, or is closed at its next request. 0 is for ever."
    )
    connection_failed_authentication_delay_ms: int = int32(
        100, "How long a client waits for the answer that it was not let in."
    )
    sasl_oauthbearer_jwks_endpoint_url: str = text("", "The keys that tokens are signed with: a URL, or file:...")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = int64(3600000, "After how long they are asked for anew.")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = int64(100, "How long to wait if they could not be had.")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = int64(10000, "The most of that, as it doubles.")
    sasl_oauthbearer_clock_skew_seconds: int = int32(30, "By how much the clock of who issues tokens may be off.")
    sasl_oauthbearer_expected_audience: str = text("", "Of these audiences a token must name one.", kind=Kind.LIST)
    sasl_oauthbearer_allow_unverified_audience: bool = boolean(
        False, "Ottla's own: whether a token may be for any audience, if none is expected."
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = boolean(
        False, "Ottla's own: whether a token may be of any issuer, if none is expected."
    )
    sasl_oauthbearer_expected_issuer: str = text("", "The issuer that a token must name.")
    sasl_oauthbearer_scope_claim_name: str = text("scope", "The claim with a token's scopes.")
    sasl_oauthbearer_sub_claim_name: str = text("sub", "The claim with the name of the user.")

    # Topics and logs.
    auto_create_topics_enable: bool = boolean(True, "Whether asking for a topic's metadata creates it.")
    num_partitions: int = int32(1, "Partitions of a topic that was created without a number.", at_least=1)
    message_max_bytes: int = int32(1048588, "The largest record batch, compressed.")
    max_decompressed_message_bytes: int = int32(
        33554432,
        "Ottla's own: the largest record batch once decompressed.",
        at_least=1024,
    )
    log_segment_bytes: int = int32(1073741824, "The size at which a log segment is closed.", at_least=1048576)
    log_roll_ms: int = int64(
        7 * _DAY_MS, "The age at which a log segment is closed.", at_least=1, also={"log.roll.hours": _HOUR_MS}
    )
    log_roll_jitter_ms: int = int64(
        0, "The most by which a segment is closed earlier, by chance.", also={"log.roll.jitter.hours": _HOUR_MS}
    )
    log_retention_ms: int = int64(
        7 * _DAY_MS,
        "The age at which a segment is deleted; -1 keeps it.",
        at_least=-1,
        also={"log.retention.minutes": 60_000, "log.retention.hours": _HOUR_MS},
    )
    log_retention_bytes: int = int64(
        -1, "The size of a log above which its oldest segments are deleted; -1 keeps them.", at_least=-(2**63)
    )
    metadata_log_segment_bytes: int = int32(
        1073741824, "The size at which a segment of the metadata log is closed.", at_least=8388608
    )
    metadata_log_segment_ms: int = int64(
        7 * _DAY_MS, "The age at which a segment of the metadata log is closed.", at_least=1
    )
    metadata_log_max_record_bytes_between_snapshots: int = int64(
        20971520, "The bytes of metadata after which a snapshot of it is taken.", at_least=1
    )
    metadata_log_max_snapshot_interval_ms: int = int64(
        3600000, "How long after a change of the metadata a snapshot is taken at the latest; 0 for never.", at_least=0
    )
    metadata_max_retention_bytes: int = int64(
        104857600, "The size of metadata log and snapshots above which the oldest go.", at_least=-(2**63)
    )
    metadata_max_retention_ms: int = int64(
        604800000, "The age above which snapshots go, but for the newest, and the log before them.", at_least=-(2**63)
    )
    log_retention_check_interval_ms: int = int64(300000, "How often it is looked for segments to delete.", at_least=1)
    compression_type: str = text("producer", "The codec on disk; producer keeps the batch's.", one_of=CODECS)
    compression_gzip_level: str = text("-1", "The level of gzip.", one_of=GZIP_LEVELS, kind=Kind.INT)
    compression_lz4_level: int = int32(9, "The level of lz4.", at_least=1, at_most=17)
    compression_zstd_level: int = int32(3, "The level of zstd.", at_least=-131072, at_most=22)
    log_index_interval_bytes: int = int32(4096, "The bytes of log for which the offset index gets one entry.")
    log_index_size_max_bytes: int = int32(10485760, "The size of an index file.", at_least=4)
    log_segment_delete_delay_ms: int = int64(60000, "How long the files of deleted segments and topics stay on disk.")
    log_message_timestamp_type: str = text(
        "CreateTime", "Whose clock stamps a record.", one_of=("CreateTime", "LogAppendTime")
    )
    log_message_timestamp_before_max_ms: int = int64(INT64_MAX, "How far a record's time may lie before the broker's.")
    log_message_timestamp_after_max_ms: int = int64(_HOUR_MS, "How far a record's time may lie after the broker's.")
    log_flush_interval_messages: int = int64(
        INT64_MAX, "The records after which a log is synced; with 1 it is on disk when acknowledged.", at_least=1
    )
    log_dir_failure_exit: bool = boolean(
        True,
        "Ottla's own: whether the broker ends with exit code 1 when its data directory fails, as Kafka does; if not, "
        "it goes on and answers KAFKA_STORAGE_ERROR.",
    )
    max_open_log_files: int = int32(
        0,
        "Ottla's own: how many log files are open at once; one not used for long is closed and opened again when it "
        "is. 0: half of what the system allows the process.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = int64(
        5000, "How often high watermarks are written down, and with them recovery points and log starts."
    )

    # Compaction.
    log_cleanup_policy: str = text(
        "delete", "What becomes of old segments.", kind=Kind.LIST, one_of=("compact", "delete")
    )
    log_cleaner_enable: bool = boolean(True, "Whether logs are compacted.")
    log_cleaner_backoff_ms: int = int64(15000, "How often it is looked for logs to compact.", at_least=1)
    log_cleaner_dedupe_buffer_size: int = int64(
        134217728,
        "The memory for the keys of the log that is compacted; Ottla needs 200 bytes a key.",
        at_least=1048576,
    )
    log_cleaner_min_cleanable_ratio: float = ratio(0.5, "The dirty share at which a log is compacted.")
    log_cleaner_min_compaction_lag_ms: int = int64(0, "The age below which a record is not compacted.")
    log_cleaner_max_compaction_lag_ms: int = int64(
        INT64_MAX, "The age above which a record must be compacted.", at_least=1
    )
    log_cleaner_delete_retention_ms: int = int64(_DAY_MS, "How long a compacted log keeps tombstones.")

    # Producers and transactions.
    producer_id_expiration_ms: int = int32(_DAY_MS, "How long a partition remembers an idle producer.", at_least=1)
    producer_id_expiration_check_interval_ms: int = int32(600000, "How often that is looked for.", at_least=1)
    transactional_id_expiration_ms: int = int32(
        7 * _DAY_MS, "How long a transactional id without a transaction is remembered.", at_least=1
    )
    transaction_max_timeout_ms: int = int32(900000, "The longest timeout a producer may ask for.", at_least=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32(
        10000, "How often transactions past their timeout are looked for.", at_least=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32(
        3600000, "How often expired transactional ids are looked for.", at_least=1
    )
    transaction_partition_verification_enable: bool = boolean(
        True, "Whether a transactional write is checked with the coordinator."
    )
    transaction_sequence_reuse_refuse: bool = boolean(
        True,
        "Ottla's own: whether a transactional batch with sequence numbers of a transaction that has ended is refused "
        "with UNKNOWN_PRODUCER_ID; Kafka may acknowledge it as a duplicate and drop it (docs/in-the-log.md).",
    )
    producer_sequence_reuse_refuse: bool = boolean(
        False,
        "Ottla's own: whether a batch that is taken for a duplicate, but has other keys, values or headers than the "
        "batch in the log, is refused with INVALID_RECORD; else it is acknowledged and dropped, as in Kafka "
        "(docs/in-the-log.md).",
    )
    transaction_version: int = int32(
        2,
        "Ottla's own: the level of the feature transaction.version in a new data directory; UpdateFeatures changes it.",
        at_most=2,
    )
    transaction_markers_wait_ms: int = int32(
        50,
        "Ottla's own: how long a request waits for the markers of its id's last transaction before it is told "
        "CONCURRENT_TRANSACTIONS; 0: not at all, and the markers come 5 ms after the reply, so that clients are told.",
        at_most=10000,
    )
    add_partitions_to_txn_retry_backoff_ms: int = int32(
        20, "How long Produce waits before it asks again to add partitions to a transaction.", at_least=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = int32(
        100, "How long Produce asks again before it answers CONCURRENT_TRANSACTIONS."
    )
    transaction_state_log_num_partitions: int = int32(
        50, "Partitions of __transaction_state; fixed once it exists.", at_least=1
    )
    transaction_state_log_segment_bytes: int = int32(
        104857600, "Segment size of __transaction_state.", at_least=1048576
    )

    # Groups and their offsets.
    offsets_topic_num_partitions: int = int32(50, "Partitions of __consumer_offsets; fixed once it exists.", at_least=1)
    offsets_topic_segment_bytes: int = int32(104857600, "Segment size of __consumer_offsets.", at_least=1048576)
    offsets_retention_minutes: int = int32(
        10080, "How long a group without members, and whoever commits without a group, keeps offsets.", at_least=1
    )
    offsets_retention_check_interval_ms: int = int64(600000, "How often it is looked for those to expire.", at_least=1)
    offset_metadata_max_bytes: int = int32(4096, "The longest text that may go with a committed offset.")
    group_min_session_timeout_ms: int = int32(6000, "The shortest session timeout a member may ask for.")
    group_max_session_timeout_ms: int = int32(1800000, "The longest session timeout a member may ask for.")
    group_initial_rebalance_delay_ms: int = int32(
        0, "How long a new group waits for more members; Kafka's default is 3000, its server.properties say 0."
    )
    group_max_size: int = int32(INT32_MAX, "The most members a group may have.", at_least=1)
    group_member_max_protocols: int = int32(
        20, "Ottla's own: the most protocols (assignors) that a member of a group may name.", at_least=1
    )
    group_member_max_metadata_bytes: int = int32(
        262144,
        "Ottla's own: the most bytes that a member may say of all its protocols (its subscription, and what its "
        "assignors add).",
        at_least=1,
    )

    listener_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """{listener's name: {option: value}} of `listener.name.NAME.OPTION`."""
    jaas_file: str = field(default="", repr=False, compare=False)
    """The text of the file of Java's `java.security.auth.login.config`."""
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False, compare=False)
    # Set after dynamic changes (`dynamic.py`): the configuration at the start, and the values set since, by source.
    static: "Config | None" = field(default=None, repr=False, compare=False)
    dynamic: tuple[tuple[int, Mapping[str, str]], ...] = field(default=(), repr=False, compare=False)

    def advertised_address(self, listener: Listener) -> Listener | None:
        """Return the advertised address of a listener; None if `advertised.listeners` leaves it out.

        An empty host is this machine's name, port 0 the port that was bound.
        """
        if not self.advertised_listeners:
            return listener
        return next((other for other in self.advertised_listeners if other.name == listener.name), None)

    def protocol(self, listener: Listener) -> str:
        """Return the security protocol of a listener."""
        return parse_protocol_map(self.listener_security_protocol_map or DEFAULT_PROTOCOL_MAP)[listener.name]

    def is_encrypted(self, listener: Listener) -> bool:
        """Whether a listener uses TLS."""
        return self.protocol(listener) in ENCRYPTED

    def has_logins(self, listener: Listener) -> bool:
        """Whether clients of a listener log in by SASL."""
        return self.protocol(listener) in WITH_LOGIN

    def origin(self, key: str) -> Origin:
        """Return the source of an option's value."""
        return self.origins.get(key, DEFAULT)


BROKER_OPTIONS: Final[tuple[Option, ...]] = options_of(Config)
