"""The broker's options: each field of `Config` is one, and this is the only list. pure

A key is the field's name with dots. Names, defaults and ranges are Kafka's (`AbstractKafkaConfig.CONFIG_DEF` of 4.3.1);
where Ottla's default differs, the meaning has the reason. Kafka's other options are ignored (`kafka_names.py`).
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

    # Node, cluster and listeners.
    node_id: int = int32(1, "The broker's id.", also={"broker.id": 1})
    cluster_id: str = text(
        "",
        "Ottla's own: the cluster id of a new data directory (Kafka: kafka-storage format -t); empty draws a random "
        "one. The broker does not start on a directory of another cluster.",
    )
    add_scram: str = password(
        "Ottla's own: the SCRAM users of a new data directory, as for kafka-storage format --add-scram: "
        "SCRAM-SHA-512=[name=alice,password=alice-secret], comma separated."
    )
    process_roles: str = text("broker", "Must contain broker, which is the controller as well.", kind=Kind.LIST)
    listeners: tuple[Listener, ...] = text(
        (Listener("PLAINTEXT", "127.0.0.1", 9092),),
        f"Where to listen: {LISTENER_RANGE}. An empty host is every interface (Kafka's default), port 0 a free port. "
        "Names and ports must differ. A client receives the address of the listener that it has connected to.",
        kind=Kind.LIST,
    )
    advertised_listeners: tuple[Listener, ...] = text(
        (),
        "The addresses that clients connect to, by listener name, if they differ from listeners. Clients of a listener "
        "that is not in the list receive no broker address.",
        kind=Kind.LIST,
    )
    controller_listener_names: str = text(
        "", "Listeners with these names are not opened: no separate controller exists."
    )
    listener_security_protocol_map: str = text(
        DEFAULT_PROTOCOL_MAP, "The security protocol of each listener, by its name."
    )
    inter_broker_listener_name: str = text(
        "", "The listener for other brokers. Ottla has no other brokers, but the listener must be an advertised one."
    )
    log_dirs: str = text("ottla-data", "The data directory. Ottla has exactly one.", also={"log.dir": 1})

    # Connections.
    socket_request_max_bytes: int = int32(
        104857600, "The largest request; a larger one closes the connection.", at_least=1
    )
    max_request_body_bytes: int = int32(
        1048576,
        "Ottla's own: the largest request except Produce; a larger one closes the connection.",
        at_least=1024,
    )
    queued_max_request_bytes: int = int64(
        -1,
        "The memory for received requests (one half) and for replies that are not sent yet (the other half; Ottla's "
        "own). At the limit large ones wait. -1 (Kafka: no limit): an eighth of the machine's memory, at most 256 MiB.",
        at_least=-1,
    )
    max_connections: int = int32(
        INT32_MAX,
        "The most connections; others wait until one ends. Connections have the file descriptors that logs leave (half "
        "of the process's limit, less 96); the broker closes connections beyond that number.",
    )
    max_connections_per_ip: int = int32(INT32_MAX, "The most connections from one IP address; further ones are closed.")
    max_connections_per_ip_overrides: str = text(
        "",
        "The most connections from single addresses or host names: HOST:NUMBER, comma separated.",
        kind=Kind.LIST,
    )
    max_connection_creation_rate: int = int32(INT32_MAX, "The most new connections in a second; further ones wait.")
    quota_window_num: int = int32(11, "The number of samples that client quotas are measured over.", at_least=1)
    quota_window_size_seconds: int = int32(1, "The duration of each sample of client quotas.", at_least=1)
    controller_quota_window_num: int = int32(
        11, "The number of samples that the quota controller_mutation_rate is measured over.", at_least=1
    )
    controller_quota_window_size_seconds: int = int32(
        1, "The duration of each sample of the quota controller_mutation_rate.", at_least=1
    )
    connections_max_idle_ms: int = int64(
        600000, "The time after which an idle connection is closed; -1: never.", at_least=-1
    )

    # TLS. For a single listener: listener.name.NAME.ssl...
    ssl_keystore_type: str = text(
        "JKS",
        "The format of the keystore. With JKS the file must be PKCS12, which Java reads too; real JKS is not read.",
        one_of=STORES,
    )
    ssl_keystore_location: str = text("", "The file with the broker's key and certificates.")
    ssl_keystore_password: str = password("The password of a PKCS12 keystore.")
    ssl_key_password: str = password("The password of the key in a PEM file or in ssl.keystore.key.")
    ssl_keystore_key: str = password("The broker's private key as PEM (PKCS 8), instead of a file.")
    ssl_keystore_certificate_chain: str = password("The certificate chain as PEM, the broker's own first.")
    ssl_truststore_type: str = text("JKS", "The format of the truststore, as for ssl.keystore.type.", one_of=STORES)
    ssl_truststore_location: str = text(
        "", "The file with the CA certificates that client certificates are checked against."
    )
    ssl_truststore_password: str = password("The password of a PKCS12 truststore.")
    ssl_truststore_certificates: str = password("The CA certificates as PEM, instead of a file.")
    ssl_client_auth: str = text(
        "none", "Whether clients present a certificate.", one_of=("none", "requested", "required")
    )
    ssl_principal_mapping_rules: str = text(
        "DEFAULT",
        "How the name in a client's certificate becomes the user of ACLs and quotas: RULE:PATTERN/REPLACEMENT/[L|U], "
        "comma separated. The first rule that matches the name is applied. DEFAULT takes the whole name.",
    )
    ssl_enabled_protocols: str = text(
        "TLSv1.2,TLSv1.3", "The TLS versions that clients may use.", kind=Kind.LIST, one_of=("TLSv1.2", "TLSv1.3")
    )
    ssl_cipher_suites: str = text(
        "",
        "The cipher suites of TLS 1.2, by their names in Java or OpenSSL; empty: OpenSSL's default. All suites of "
        "TLS 1.3 are always on; a list of only these turns TLS 1.2 off.",
        kind=Kind.LIST,
    )
    ssl_allow_dn_changes: bool = boolean(False, "Whether a new keystore may have a certificate with another name (DN).")
    ssl_allow_san_changes: bool = boolean(
        False, "Whether the certificate of a new keystore may lack alternative names (SAN) that the old one has."
    )

    # Authorization.
    authorizer_class_name: str = text(
        "",
        "The authorizer: Kafka's StandardAuthorizer (of org.apache.kafka.metadata.authorizer), which decides by the "
        "ACLs in the metadata. Empty: every client may do everything.",
    )
    super_users: str = text(
        "", "The users that may do everything, whatever the ACLs are: User:NAME, semicolon separated."
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether every user may do everything with a resource that no ACL matches."
    )

    # SASL. For a single listener: listener.name.NAME..., for one of its mechanisms: listener.name.NAME.MECHANISM...
    sasl_enabled_mechanisms: str = text(
        "GSSAPI",
        "The mechanisms of listeners with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's default is "
        "not supported, so a listener with SASL needs this option.",
        kind=Kind.LIST,
    )
    sasl_server_max_receive_size: int = int32(524288, "The largest request of a client that has not logged in.")
    sasl_server_callback_handler_class: str = text(
        "", "The Kafka class that checks the tokens of OAUTHBEARER. Other mechanisms ignore it."
    )
    connections_max_reauth_ms: int = int64(
        0,
        "The time after which a client must authenticate again; if it does not, its next request closes the "
        "connection. 0: no limit.",
    )
    connection_failed_authentication_delay_ms: int = int32(100, "The delay of the reply to a failed login.")
    sasl_oauthbearer_jwks_endpoint_url: str = text(
        "", "The URL of the keys (JWKS) that check the signatures of tokens; file:... for a file."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = int64(3600000, "How often these keys are fetched again.")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = int64(
        100, "The first delay after a failed fetch; it doubles each time."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = int64(10000, "The longest delay after failed fetches.")
    sasl_oauthbearer_clock_skew_seconds: int = int32(30, "By how much the clock of the token issuer may differ.")
    sasl_oauthbearer_expected_audience: str = text(
        "", "The accepted audiences; a token must name one of them.", kind=Kind.LIST
    )
    sasl_oauthbearer_allow_unverified_audience: bool = boolean(
        False, "Ottla's own: whether to accept tokens for any audience when no audience is expected."
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = boolean(
        False, "Ottla's own: whether to accept tokens of any issuer when no issuer is expected."
    )
    sasl_oauthbearer_expected_issuer: str = text("", "The issuer that a token must name.")
    sasl_oauthbearer_scope_claim_name: str = text("scope", "The claim that holds the scopes of a token.")
    sasl_oauthbearer_sub_claim_name: str = text("sub", "The claim that holds the name of the user.")

    # Topics and logs.
    auto_create_topics_enable: bool = boolean(True, "Whether a Metadata request creates the topics that it names.")
    num_partitions: int = int32(1, "Partitions of a topic that is created without a number of partitions.", at_least=1)
    message_max_bytes: int = int32(1048588, "The largest record batch, as compressed.")
    max_decompressed_message_bytes: int = int32(
        33554432,
        "Ottla's own: the largest record batch after decompression.",
        at_least=1024,
    )
    log_segment_bytes: int = int32(1073741824, "The size at which a log segment is closed.", at_least=1048576)
    log_roll_ms: int = int64(
        7 * _DAY_MS, "The age at which a log segment is closed.", at_least=1, also={"log.roll.hours": _HOUR_MS}
    )
    log_roll_jitter_ms: int = int64(
        0,
        "The longest random time by which a segment is closed earlier.",
        also={"log.roll.jitter.hours": _HOUR_MS},
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
        20971520, "The bytes of metadata records after which a snapshot is taken.", at_least=1
    )
    metadata_log_max_snapshot_interval_ms: int = int64(
        3600000, "The longest time from a change of the metadata to a snapshot; 0: no limit.", at_least=0
    )
    metadata_max_retention_bytes: int = int64(
        104857600, "The size of metadata log and snapshots above which the oldest are deleted.", at_least=-(2**63)
    )
    metadata_max_retention_ms: int = int64(
        604800000,
        "The age at which a snapshot, except the newest, and the log before it are deleted.",
        at_least=-(2**63),
    )
    log_retention_check_interval_ms: int = int64(
        300000, "How often the broker looks for segments to delete.", at_least=1
    )
    compression_type: str = text(
        "producer", "The codec of batches on disk; producer keeps the codec of the producer.", one_of=CODECS
    )
    compression_gzip_level: str = text("-1", "The compression level of gzip.", one_of=GZIP_LEVELS, kind=Kind.INT)
    compression_lz4_level: int = int32(9, "The compression level of lz4.", at_least=1, at_most=17)
    compression_zstd_level: int = int32(3, "The compression level of zstd.", at_least=-131072, at_most=22)
    log_index_interval_bytes: int = int32(4096, "The bytes of log for each entry of the offset index.")
    log_index_size_max_bytes: int = int32(10485760, "The largest size of an index file.", at_least=4)
    log_segment_delete_delay_ms: int = int64(60000, "The time that files of deleted segments and topics stay on disk.")
    log_message_timestamp_type: str = text(
        "CreateTime",
        "The clock of record timestamps: the producer's (CreateTime) or the broker's.",
        one_of=("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = int64(
        INT64_MAX, "The most by which a record's time may be before the broker's."
    )
    log_message_timestamp_after_max_ms: int = int64(
        _HOUR_MS, "The most by which a record's time may be after the broker's."
    )
    log_flush_interval_messages: int = int64(
        INT64_MAX,
        "The records after which a log is synced; with 1 a record is on disk before it is acknowledged.",
        at_least=1,
    )
    log_dir_failure_exit: bool = boolean(
        True,
        "Ottla's own: whether the broker exits with code 1 when its data directory fails, as Kafka does; false: it "
        "keeps running and answers KAFKA_STORAGE_ERROR.",
    )
    max_open_log_files: int = int32(
        0,
        "Ottla's own: the most log files that are open at once; the least recently used are closed, and opened again "
        "when needed. 0: half of the process's limit of file descriptors.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = int64(
        5000, "How often high watermarks, recovery points and log start offsets are written to their checkpoints."
    )

    # Compaction.
    log_cleanup_policy: str = text(
        "delete", "What is done with old segments.", kind=Kind.LIST, one_of=("compact", "delete")
    )
    log_cleaner_enable: bool = boolean(True, "Whether logs are compacted.")
    log_cleaner_backoff_ms: int = int64(15000, "How often the broker looks for logs to compact.", at_least=1)
    log_cleaner_dedupe_buffer_size: int = int64(
        134217728,
        "The memory for the keys of the log that is being compacted; Ottla needs 200 bytes for each key.",
        at_least=1048576,
    )
    log_cleaner_min_cleanable_ratio: float = ratio(0.5, "The dirty ratio from which on a log is compacted.")
    log_cleaner_min_compaction_lag_ms: int = int64(0, "The age below which a record is not compacted.")
    log_cleaner_max_compaction_lag_ms: int = int64(
        INT64_MAX, "The age above which a record must be compacted.", at_least=1
    )
    log_cleaner_delete_retention_ms: int = int64(_DAY_MS, "How long a compacted log keeps tombstones.")

    # Producers and transactions.
    producer_id_expiration_ms: int = int32(
        _DAY_MS, "The time after which a partition forgets an idle producer.", at_least=1
    )
    producer_id_expiration_check_interval_ms: int = int32(
        600000, "How often partitions look for expired producers.", at_least=1
    )
    transactional_id_expiration_ms: int = int32(
        7 * _DAY_MS, "The time after which a transactional id without a transaction is forgotten.", at_least=1
    )
    transaction_max_timeout_ms: int = int32(
        900000, "The longest transaction timeout that a producer may request.", at_least=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32(
        10000, "How often the broker looks for transactions that have timed out.", at_least=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32(
        3600000, "How often the broker looks for expired transactional ids.", at_least=1
    )
    transaction_partition_verification_enable: bool = boolean(
        True, "Whether a partition verifies transactional writes with the coordinator."
    )
    transaction_sequence_reuse_refuse: bool = boolean(
        True,
        "Ottla's own: whether to refuse a transactional batch that uses sequence numbers of an ended transaction, with "
        "UNKNOWN_PRODUCER_ID. Kafka may acknowledge such a batch as a duplicate and drop it (docs/in-the-log.md).",
    )
    producer_sequence_reuse_refuse: bool = boolean(
        False,
        "Ottla's own: whether to refuse a duplicate whose keys, values or headers differ from the batch in the log, "
        "with INVALID_RECORD; false: it is acknowledged and dropped, as in Kafka (docs/in-the-log.md).",
    )
    transaction_version: int = int32(
        2,
        "Ottla's own: the level of the feature transaction.version in a new data directory. Later only UpdateFeatures "
        "changes it.",
        at_most=2,
    )
    transaction_markers_wait_ms: int = int32(
        50,
        "Ottla's own: how long a request waits for the markers of the previous transaction of its transactional id "
        "before the reply is CONCURRENT_TRANSACTIONS. 0: it does not wait, and the broker writes the markers 5 ms "
        "after the reply to EndTxn, so that clients meet this error.",
        at_most=10000,
    )
    add_partitions_to_txn_retry_backoff_ms: int = int32(
        20, "The delay after which Produce tries again to add a partition to a transaction.", at_least=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = int32(
        100, "The time for which Produce tries again before it answers CONCURRENT_TRANSACTIONS."
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
        10080,
        "How long offsets are kept: of a group from the time when it has no members, of a client without group "
        "membership from its last commit.",
        at_least=1,
    )
    offsets_retention_check_interval_ms: int = int64(
        600000, "How often the broker looks for expired offsets.", at_least=1
    )
    offset_metadata_max_bytes: int = int32(4096, "The longest metadata string of a committed offset.")
    group_min_session_timeout_ms: int = int32(6000, "The shortest session timeout that a member may request.")
    group_max_session_timeout_ms: int = int32(1800000, "The longest session timeout that a member may request.")
    group_initial_rebalance_delay_ms: int = int32(
        0, "How long a new group waits for more members. Kafka's default is 3000, its server.properties has 0."
    )
    group_max_size: int = int32(INT32_MAX, "The most members of a group.", at_least=1)
    group_member_max_protocols: int = int32(
        20, "Ottla's own: the most protocols (assignors) of a group member.", at_least=1
    )
    group_member_max_metadata_bytes: int = int32(
        262144,
        "Ottla's own: the most bytes of metadata that a member may send for all its protocols (its subscription and "
        "the data of its assignors).",
        at_least=1,
    )

    listener_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """{listener's name: {option: value}} of `listener.name.NAME.OPTION`."""
    jaas_file: str = field(default="", repr=False, compare=False)
    """The text of the file of Java's `java.security.auth.login.config`."""
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False, compare=False)
    # Set by dynamic changes (`dynamic.py`): the configuration at the start, and the values set since then, by source.
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
        """Return whether a listener uses TLS."""
        return self.protocol(listener) in ENCRYPTED

    def has_logins(self, listener: Listener) -> bool:
        """Return whether clients of a listener log in by SASL."""
        return self.protocol(listener) in WITH_LOGIN

    def origin(self, key: str) -> Origin:
        """Return the source of an option's value."""
        return self.origins.get(key, DEFAULT)


BROKER_OPTIONS: Final[tuple[Option, ...]] = options_of(Config)
