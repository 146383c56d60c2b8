"""Keys that name no option: recognition of Kafka's own, and suggestions for the others. pure"""

import re
from difflib import get_close_matches
from typing import Final

from ottla.broker.config.broker import OPTION_OF_KEY
from ottla.broker.config.kept import KEPT_OPTIONS
from ottla.broker.config.listener_options import of_listener
from ottla.broker.config.topic import TOPIC_OPTIONS

_IGNORED: Final = """
alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds auto.leader.rebalance.enable broker.heartbeat.interval.ms
broker.rack broker.session.timeout.ms client.quota.callback.class config.providers controlled.shutdown.enable
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
controller.quorum.append.linger.ms controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
controller.quorum.retry.backoff.ms controller.quorum.voters controller.socket.timeout.ms cordoned.log.dirs
create.topic.policy.class.name delegation.token.expiry.check.interval.ms
delegation.token.expiry.time.ms delegation.token.max.lifetime.ms delegation.token.secret.key
delete.records.purgatory.purge.interval.requests delete.topic.enable early.start.listeners fetch.max.bytes
fetch.purgatory.purge.interval.requests
group.coordinator.append.linger.ms group.coordinator.background.threads group.coordinator.threads group.share.assignors
group.share.delivery.count.limit
group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks group.share.min.record.lock.duration.ms
group.share.min.session.timeout.ms group.share.partition.max.record.locks group.share.persister.class.name
group.share.record.lock.duration.ms group.share.session.timeout.ms group.streams.heartbeat.interval.ms
group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms
initial.broker.registration.timeout.ms internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
internal.metadata.max.batch.size.in.bytes kafka.metrics.polling.interval.secs kafka.metrics.reporters
leader.imbalance.check.interval.seconds log.dir.failure.timeout.ms log.flush.offset.checkpoint.interval.ms
log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms
metadata.log.dir
metadata.max.idle.interval.ms metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
num.replica.alter.log.dirs.threads offsets.commit.timeout.ms offsets.load.buffer.size offsets.topic.compression.codec
principal.builder.class producer.purgatory.purge.interval.requests queued.max.requests
remote.log.index.file.cache.ttl.ms remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.task.interval.ms
remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes
replica.fetch.wait.max.ms replica.lag.time.max.ms replica.selector.class replica.socket.receive.buffer.bytes
replica.socket.timeout.ms replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms
sasl.client.callback.handler.class sasl.jaas.config sasl.login.callback.handler.class sasl.login.class
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
sasl.mechanism.inter.broker.protocol sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.token.endpoint.url security.inter.broker.protocol security.providers server.max.startup.time.ms
share.coordinator.append.linger.ms share.coordinator.cold.partition.snapshot.interval.ms
share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes share.coordinator.threads
share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms socket.listen.backlog.size socket.receive.buffer.bytes socket.send.buffer.bytes
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm telemetry.max.bytes transaction.state.log.load.buffer.size
unclean.leader.election.interval.ms unstable.feature.versions.enable
"""
"""The broker options of Apache Kafka 4.3.1 (`KafkaConfig.configNames`) that have no field."""

IGNORED_KEYS: Final = frozenset(_IGNORED.split()) | {option.key for option in KEPT_OPTIONS}
"""The broker options of Apache Kafka that have no effect at the start of Ottla."""
_OF_BROKER: Final = {option.key: option.broker for option in TOPIC_OPTIONS if option.broker}
"""The broker's name of each topic config."""
_NEAR: Final = 0.75
_SECRET_WORDS: Final = re.compile(r"passw|secret|jaas|token|credential")
_SECRET: Final = sorted(
    {key for key, option in OPTION_OF_KEY.items() if option.is_secret or _SECRET_WORDS.search(key)}
    | set(filter(_SECRET_WORDS.search, IGNORED_KEYS))
)


def known_to_kafka(key: str) -> bool:
    """Return whether Kafka has an option of this name, also for one listener
    (`listener.name.NAME.[MECHANISM.]OPTION`). `key` is no option of Ottla."""
    if key in IGNORED_KEYS:
        return True
    named = of_listener(key)
    if named is None:
        return False
    names = (named[1], named[1].partition(".")[2])
    return any(name in IGNORED_KEYS or name in OPTION_OF_KEY for name in names)


def may_be_secret(key: str) -> bool:
    """Return whether an unknown key resembles that of a password."""
    named = of_listener(key)
    tidy = _tidy(key if named is None else named[1])
    return bool(get_close_matches(tidy, _SECRET, 1, _NEAR)) or _SECRET_WORDS.search(tidy) is not None


def _tidy(key: str) -> str:
    return key.strip().lower().replace("_", ".").replace("-", ".")


def suggestion(key: str) -> str:
    """Return `did you mean KEY?`, or an empty string if no option has a similar name."""
    tidy = _tidy(key)
    meant = tidy if tidy in OPTION_OF_KEY else _OF_BROKER.get(tidy)
    if meant is None:
        # Options of Ottla take precedence over Kafka's others.
        near = get_close_matches(tidy, sorted(OPTION_OF_KEY), 1, _NEAR) or get_close_matches(
            tidy, sorted(IGNORED_KEYS), 1, _NEAR
        )
        meant = near[0] if near else None
    return f"did you mean {meant}?" if meant else ""
