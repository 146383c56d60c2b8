"""Cases of the formats of batches and records. free"""

from typing import Final

from ottla.protocol.batch import ABORT, COMMIT, build_batch
from ottla.protocol.batch_header import read_header, seal, write_header
from ottla.protocol.records import NewRecord
from ottla.protocol.values import NO_TIMESTAMP
from ottla.testkit.corpus.case import Case
from ottla.testkit.corpus.case_run import BEGIN_MS, CaseRun
from ottla.testkit.corpus.compressed import CODECS, FATES, compress_batch
from ottla.testkit.corpus.crashed import FIRST_SEGMENT
from ottla.testkit.corpus.producer import Producer

_HEADERS: Final = (("n", b"1"), ("n", None), ("", b""), ("größe", b"\xff"), ("n", b"2"))
_UNUSED_ATTRIBUTES: Final = 0x0180


def _codecs(run: CaseRun) -> None:
    run.topic()
    orders = Producer(run, "orders")
    for name, codec in CODECS.items():
        for fate in FATES:
            records, payload = compress_batch(fate, name)
            orders.send(*records, codec=codec, payload=payload)
            orders.end(commit=fate == "committed")


def _shapes(run: CaseRun) -> None:
    run.topic()
    run.send(
        NewRecord(None, b"plain without a key"),
        NewRecord(b"without a value", None),
        NewRecord(None, None),
        NewRecord(b"", b""),
        NewRecord(b"\xff\x00", b"\xc3\x28"),
        NewRecord(
            b"headers", b"plain", [("n", b"1"), ("n", None), ("", b""), ("gr\u00f6\u00dfe", b"\xff"), ("n", b"2")]
        ),
    )
    run.send(*[NewRecord(b"%d" % number, b"plain %d" % number) for number in range(130)])
    run.send(NewRecord(b"large", b"plain " + b"x" * 20_000, [(f"header-{n}", b"%d" % n) for n in range(70)]))
    now_ms = run.now_ms
    run.send(
        NewRecord(b"now", b"plain 1", (), now_ms),
        NewRecord(b"before", b"plain 2", (), now_ms - 1),
        NewRecord(b"1970", b"plain 3", (), 0),
        NewRecord(b"behind", b"plain 4", (), now_ms + 70_000),
    )


def _looks_like_markers(run: CaseRun) -> None:
    run.topic()
    orders, billing = Producer(run, "orders"), Producer(run, "billing")
    for producer, fate in ((orders, b"aborted"), (billing, b"committed")):
        for control_type in (ABORT, COMMIT):
            # The key of a marker: version 0 and its type, two bytes each.
            producer.send(NewRecord(bytes((0, 0, 0, control_type)), fate + b" %d" % control_type))
        producer.send(NewRecord(b"last", fate + b" 2"))
    orders.abort()
    billing.commit()


def _append_time(run: CaseRun) -> None:
    run.topic(message_timestamp_type="LogAppendTime")
    orders = Producer(run, "orders")
    run.send(
        NewRecord(b"a", b"plain 1", (), BEGIN_MS - 5_000),
        NewRecord(b"b", b"plain 2", (), BEGIN_MS - 90_000),
    )
    orders.commit("committed 1", "committed 2")
    run.send(NewRecord(b"c", b"plain 3"), timestamp_ms=NO_TIMESTAMP)


def _old_batches(run: CaseRun) -> None:
    run.topic()
    run.send(NewRecord(b"a", b"plain 1"), NewRecord(b"b", b"plain 2"), timestamp_ms=NO_TIMESTAMP)
    records = [NewRecord(b"c", b"plain 3")]
    batch = build_batch(records, timestamp_ms=run.now_ms)
    header = read_header(batch)
    write_header(batch, header._replace(attributes=header.attributes | _UNUSED_ATTRIBUTES))
    seal(batch)
    run.send_bytes(batch, records, 0, run.now_ms)

    def forget_epoch(files: dict[str, bytes]) -> None:
        path = f"{run.name}-0/{FIRST_SEGMENT}"
        files[path] = files[path][:12] + b"\xff" * 4 + files[path][16:]

    run.edits.append(forget_epoch)


CASES = (
    Case(
        "every-codec",
        "A committed and an aborted transaction in each of gzip, snappy, lz4 and zstd, as the Java client compresses.",
        "Compressed batches of aborted transactions are dropped like others. Snappy comes in the frames of "
        "snappy-java, zstd and lz4 without the size of their content.",
        (
            "https://github.com/confluentinc/librdkafka/issues/3020",
            "https://github.com/kafka-protocol-rs/kafka-protocol-rs/issues/79",
            "https://github.com/osodevops/kafka-backup/issues/152",
        ),
        _codecs,
    ),
    Case(
        "records-of-every-shape",
        "Null keys and values, empty ones, bytes that are not UTF-8, headers with null values and the same name twice, "
        "varints of up to six bytes, timestamps that go backwards.",
        "Null is not empty. Headers have an order, and names that repeat. Deltas of timestamps are negative.",
        (
            "https://github.com/vert-x3/vertx-kafka-client/issues/313",
            "https://github.com/obsidiandynamics/kafdrop/pull/139",
            "https://github.com/apache/druid/pull/16192",
        ),
        _shapes,
    ),
    Case(
        "records-that-look-like-markers",
        "Records of an aborted and of a committed transaction, with the keys that abort and commit markers have.",
        "The attributes of a batch show that it is a marker. Any record may have such a key.",
        (),
        _looks_like_markers,
    ),
    Case(
        "log-append-time",
        "A topic with message.timestamp.type=LogAppendTime.",
        "The timestamp of every record is the largest of its batch. The deltas in the records are the producer's, and "
        "have no effect.",
        (
            "https://github.com/kafka4beam/kafka_protocol/pull/60",
            "https://github.com/zendesk/ruby-kafka/pull/706",
            "https://github.com/tulios/kafkajs/pull/838",
            "https://github.com/redpanda-data/redpanda/pull/27674",
        ),
        _append_time,
    ),
    Case(
        "unusual-batches",
        "A batch without timestamps and without a leader epoch (-1), and one with attributes that have no meaning yet.",
        "An unknown value is -1 and not an error, and unknown attributes are ignored.",
        (),
        _old_batches,
    ),
)
