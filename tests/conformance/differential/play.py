"""Plays many scripts to one broker: their topics, the coordinators they need, a few connections at a time."""

import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

from differential.asking import NOT_UTF8, NULL
from differential.player import Player
from differential.two_phase_tables import OPTIONS
from targets import SCENARIO_OVERRIDES, ApacheKafka, ApacheKafkaNext, Ottla

from ottla.broker.config.load import from_flags, load_config
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.thread_broker import ThreadBroker

FIND_COORDINATOR, CREATE_TOPICS, LIST_OFFSETS, INIT_PRODUCER_ID = 10, 19, 2, 22
# Timed-out transactions are looked for often. Coordinators of four partitions are ready soon.
OVERRIDES = {
    "auto.create.topics.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
TOPICS_AT_ONCE = 50
WARM_UP_IDS = 20
READY_S = 60.0
# As long as what stands for it: a lone continuation, an overlong slash, half a pair, a cut sequence.
NO_TEXT = b"\x80\xc0\xaf\xed\xa0\x80\xe2\x82"
ANSWER_S = 10.0


def kafka_at(level, kafka=ApacheKafka):
    """Apache Kafka with this `transaction.version`, or in this setting."""
    if level in OPTIONS:
        return lambda directory, overrides: kafka(directory, overrides | OPTIONS[level])
    return type(f"KafkaAtLevel{level}", (kafka,), {"features": (f"transaction.version={level}",)})


def next_kafka_at(level):
    return kafka_at(level, ApacheKafkaNext)


def ottla_at(level, *, refuse_reuse=False):
    """Ottla with this `transaction.version`, or in this setting.

    It sends clients away while markers are written, as Kafka does, and takes a reused sequence for what
    Kafka takes it for, unless `refuse_reuse`.
    """
    own = own_overrides(level, refuse_reuse=refuse_reuse)
    return lambda directory, overrides: Ottla(directory, overrides | own)


def own_overrides(level, *, refuse_reuse=False):
    return OPTIONS.get(level, {"transaction.version": str(level)}) | {
        "transaction.markers.wait.ms": "0",
        "transaction.sequence.reuse.refuse": str(refuse_reuse).lower(),
    }


def ottla_refusing_at(level):
    return ottla_at(level, refuse_reuse=True)


class OttlaInThread:
    """Ottla at a `transaction.version` in a thread of this process, where the epoch of an id can be raised."""

    def __init__(self, level, directory):
        overrides = SCENARIO_OVERRIDES | OVERRIDES | own_overrides(level)
        config = load_config(from_flags(f"{key}={value}" for key, value in overrides.items())).config
        names = [key.replace(".", "_") for key in overrides]
        self._broker = ThreadBroker(directory, **{name: getattr(config, name) for name in names})

    def start(self):
        self.bootstrap = self._broker.__enter__().bootstrap

    def stop(self):
        self._broker.__exit__()

    def raise_epoch(self, transactional_id, count):
        """Raise the epoch as `count` requests do that initialize the id. No request of the id is under way."""
        states = self._broker.server.broker.transactions.states.shard_of(transactional_id).states
        state = states[transactional_id]
        states[transactional_id] = state._replace(producer_epoch=state.producer_epoch + count)


class BluntConnection(BlockingConnection):
    """Sends strings that are null where they must not be, or not UTF-8."""

    _held = None

    def send_together(self, requests):
        """The responses to (request, version) pairs that leave in one piece."""
        self._held = bytearray()
        for request, version in requests:
            self.post(request, version)
        data, self._held = self._held, None
        super().write(data)
        return [self.receive() for _ in requests]

    def write(self, data):
        frame = bytes(data).replace(NOT_UTF8.encode(), NO_TEXT)
        size = len(NULL)
        for written, null in ((size.to_bytes(2), b"\xff\xff"), ((size + 1).to_bytes(1), b"\x00")):
            frame = frame.replace(written + NULL.encode(), null)
        frame = (len(frame) - 4).to_bytes(4) + frame[4:]
        if self._held is None:
            super().write(frame)
        else:
            self._held += frame


def connect(broker):
    host, _, port = broker.bootstrap.rpartition(":")
    return BluntConnection(host, int(port), client_id="differential", timeout_s=ANSWER_S)


def play_all(broker, scripts):
    """{script name: answers} of a running broker."""
    with connect(broker) as connection:
        _create_topics(connection, [_prefix(script) for script in scripts])
        _wake_coordinators(connection)
    patient = [script for script in scripts if any(step["op"] == "await_timeout" for step in script.steps)]
    with ThreadPoolExecutor(max(1, len(patient))) as pool:
        answers = list(pool.map(lambda script: _play(broker, script, _prefix(script)), patient))
    played = {script.name: answer for script, answer in zip(patient, answers, strict=True)}
    # One after the other: Kafka verifies what several connections ask at once under the request version of the first.
    for script in scripts:
        if script.name not in played:
            played[script.name] = _play(broker, script, _prefix(script))
    return played


def _prefix(script):
    """The same in whatever company a script is played: the partitions of the coordinators hang on it."""
    return f"d{sha256(script.name.encode()).hexdigest()[:12]}"


def _play(broker, script, prefix):
    return Player(lambda: connect(broker), script, prefix, getattr(broker, "raise_epoch", None)).play()


def _create_topics(connection, names):
    request = codec.request_class(CREATE_TOPICS)
    for start in range(0, len(names), TOPICS_AT_ONCE):
        topics = [
            request.CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
            for name in names[start : start + TOPICS_AT_ONCE]
        ]
        reply = connection.send(request(topics=topics, timeout_ms=30_000, validate_only=False), 5)
        assert {topic.error_code for topic in reply.topics} == {ErrorCode.NONE}
    for name in names:
        _until(lambda name=name: _has_leaders(connection, name), f"{name} has its leaders")


def _has_leaders(connection, name):
    request = codec.request_class(LIST_OFFSETS)
    topic = request.ListOffsetsTopic
    asked = [topic.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
    topics = [topic(name=name, partitions=asked)]
    rows = connection.send(request(replica_id=-1, isolation_level=0, topics=topics), 6).topics[0].partitions
    return {row.error_code for row in rows} == {ErrorCode.NONE}


def _wake_coordinators(connection):
    """The internal topics are created by the first who asks, and loaded then."""
    find = codec.request_class(FIND_COORDINATOR)
    init = codec.request_class(INIT_PRODUCER_ID)
    for kind in (0, 1):
        _until(lambda kind=kind: not connection.send(find(key="warm", key_type=kind), 2).error_code, "a coordinator")
    for number in range(WARM_UP_IDS):
        asked = init(transactional_id=f"warm-{number}", transaction_timeout_ms=1000)
        _until(lambda asked=asked: not connection.send(asked, 2).error_code, "the coordinator is loaded")


def _until(is_so, what):
    deadline = time.monotonic() + READY_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {READY_S} s: {what}"
        time.sleep(0.02)
