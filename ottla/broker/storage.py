"""The log directory of one broker and its cluster, opened in steps. shell"""

from dataclasses import replace
from logging import getLogger
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.cluster.features import TRANSACTION_FEATURE
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.broker.cluster.kraft_log import METADATA_SETTINGS
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.config import Config, ConfigInForce
from ottla.broker.config.option import DEFAULT
from ottla.broker.config.principals import parse_super_users
from ottla.broker.config.scram import parse_scram_users
from ottla.broker.log.log_config import LogConfig, LogConfigs
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk
from ottla.broker.security.scram import BY_NAME, user_record
from ottla.broker.turns import Turns
from ottla.protocol.steps import Steps

if TYPE_CHECKING:
    from ottla.broker.security.acl import AclAuthorizer

log = getLogger(__name__)


class Storage:
    """The persistent state of a broker: its logs and, once it is open, its cluster and the effective configuration."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        disk: Disk,
        turns: Turns,
        truncate_damaged: frozenset[str] = frozenset(),
        broker_count: int = 1,
    ) -> None:
        """Create the storage; `open` reads it. `broker_count` brokers share it."""
        self.config = config
        self._broker_count = broker_count
        self.in_force = ConfigInForce(config)
        disk.charge = turns.charge
        self.logs = LogManager(disk, clock, turns, config, truncate_damaged)
        self.cluster: Cluster
        self.authorizer: AclAuthorizer | None = None
        """Authorizes clients by the ACLs of the metadata. None: every client may do everything."""
        self._disk = disk
        self._clock = clock
        self._turns = turns

    def new_uuid(self) -> UUID:
        """Return a random UUID."""
        return UUID(bytes=self._disk.random_id(), version=4)

    def open(self) -> Steps[None]:
        """Open the directory, read the metadata, and recover logs after a crash. No step is a `Work`.

        LogDirectoryError or OSError leave the directory unlocked. A caller that closes the steps early leaves it
        unlocked too, in the state that a kill would leave.
        """
        config, in_force, logs = self.config, self.in_force, self.logs
        log_configs = LogConfigs()
        _open_directory(logs, config.log_dirs)
        self.cluster = cluster = Cluster(
            logs,
            self._clock,
            self._turns,
            logs.properties.node_id,
            lambda: self.new_uuid().bytes,
            lambda own: log_configs.of(in_force.of(cluster.node_id, cluster.image.broker_configs), own),
            _internal_topics(config, self._broker_count),
            config.num_partitions,
            config.transaction_version,
            _metadata_settings(config),
            lambda: (user_record(user, self._disk.random_id) for user in parse_scram_users(config.add_scram)),
            self._broker_count,
            config.default_replication_factor,
        )
        try:
            yield from cluster.open_steps()
            if config.authorizer_class_name:
                from ottla.broker.security.acl import AclAuthorizer

                super_users = parse_super_users(config.super_users)
                self.authorizer = AclAuthorizer(super_users, config.allow_everyone_if_no_acl_found)
                yield from self.authorizer.load_acls(cluster.image.acls.values())
        except (LogDirectoryError, OSError, GeneratorExit):
            logs.abandon()
            raise
        self.config = config = in_force.of(cluster.node_id, cluster.image.broker_configs)
        _compare_levels(config, cluster)
        _log_missing_users(config, cluster)
        _compare_acls(config, cluster)
        _warn_of_unknown_partitions(cluster, logs.truncate_damaged)


def _open_directory(logs: LogManager, directory: str) -> None:
    try:
        logs.open()
        if not logs.clean_start and logs.partition_dirs():
            log.info("The last shutdown was not clean: recovering")
    except FileExistsError as error:
        raise OSError(f"Data directory {directory}: {error.filename} is not a directory") from error
    except OSError as error:
        place = directory if error.filename is None else error.filename
        raise OSError(f"Data directory {place}: {error.strerror or error}") from error


def _compare_levels(config: Config, cluster: Cluster) -> None:
    """Warn if the configured level is not the level in this directory."""
    given, level = config.transaction_version, cluster.feature(TRANSACTION_FEATURE)
    if given != level and config.origin(TRANSACTION_FEATURE) != DEFAULT:
        log.warning("transaction.version is %d in this directory, not %d: UpdateFeatures changes it", level, given)


def _log_missing_users(config: Config, cluster: Cluster) -> None:
    """Warn if configured users do not exist, because the directory was not new."""
    users = {(user.name, BY_NAME[user.mechanism]): user for user in parse_scram_users(config.add_scram)}
    missing = [
        f"{user.name} ({user.mechanism})" for key, user in users.items() if key not in cluster.image.scram_credentials
    ]
    if missing:
        log.warning(
            "add.scram applies only to a new directory, and this one has no %s: add users with kafka-configs",
            ", ".join(missing),
        )


def _compare_acls(config: Config, cluster: Cluster) -> None:
    """Warn if ACLs are in the metadata but are not enforced."""
    if cluster.image.acls and not config.authorizer_class_name:
        log.warning("The metadata holds %d ACLs: not enforced without authorizer.class.name", len(cluster.image.acls))


def _warn_of_unknown_partitions(cluster: Cluster, truncate_damaged: frozenset[str]) -> None:
    for name in sorted(truncate_damaged):
        topic, _, index = name.rpartition("-")
        if cluster.partition(topic, int(index)) is None:
            log.warning("--truncate-damaged %s: there is no such partition", name)


def _internal_topics(config: Config, broker_count: int) -> dict[str, tuple[int, dict[str, str], int]]:
    """Return partition counts, forced configs and replication factors. Source: `TransactionStateManager`,
    `GroupCoordinatorService` of Kafka 4.3.1."""

    def configs_for(codec: str, segment_bytes: int) -> dict[str, str]:
        return {"cleanup.policy": "compact", "compression.type": codec, "segment.bytes": str(segment_bytes)}

    transactions = configs_for("uncompressed", config.transaction_state_log_segment_bytes)
    if broker_count > 1:  # one replica is always enough
        transactions["min.insync.replicas"] = str(config.transaction_state_log_min_isr)
    offsets = configs_for("producer", config.offsets_topic_segment_bytes)
    return {
        TRANSACTION_STATE_TOPIC: (
            config.transaction_state_log_num_partitions,
            transactions,
            config.transaction_state_log_replication_factor,
        ),
        CONSUMER_OFFSETS_TOPIC: (
            config.offsets_topic_num_partitions,
            offsets,
            config.offsets_topic_replication_factor,
        ),
    }


def _metadata_settings(config: Config) -> LogConfig:
    return replace(
        METADATA_SETTINGS,
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        file_delete_delay_ms=config.log_segment_delete_delay_ms,
    )
