"""The functions for notebooks return the same as the views and the walk, for Kafka's directories and random logs."""

import random
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan import events
from ottla.scan.damage_log import DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.snapshot_ranges import PartitionWalk
from tests.spark.views import read_view, reader_of

pytestmark = pytest.mark.spark

LATER = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def few_tasks(spark):
    """Use few shuffle partitions: small data does not need 200."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


def frame_of(spark, root, view, **options):
    """Return the view as a DataFrame from another source, without the data source."""
    import pyarrow as pa

    reader = reader_of(root, view, **options)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return spark.createDataFrame(pa.Table.from_batches(batches, schema=reader.arrow_schema()))


def rows_of(frame):
    """Return rows as sorted tuples with times in ms."""
    return in_order(tuple(map(plain, row)) for row in frame.collect())


def plain(value):
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return value


def in_order(rows):
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


@pytest.fixture(scope="module")
def many_logs(tmp_path_factory):
    """Thirty random logs, as partitions of one directory: producers that do what they may not do, too."""
    from tests.segment_files import LogWriter

    root = tmp_path_factory.mktemp("many") / "log"
    root.mkdir()
    (root / "meta.properties").write_text("version=1\n")
    for seed in range(30):
        chance = random.Random(seed)
        write_wild_log(LogWriter(root, "wild", seed), chance)
    return root


def write_wild_log(log, chance):
    """Mostly sound sequences and epochs, now and then a gap, a duplicate, a zombie, missing offsets, a long pause."""
    sequences, epochs, coordinator, now = {}, {}, 1, 1_700_000_000_000
    for _ in range(chance.choice([10, 60, 150])):
        producer = chance.randrange(4)
        now += chance.choice([1, 50, 50, 90_000_000 if chance.random() < 0.02 else 10])
        if chance.random() < 0.05:
            log.next_offset += chance.choice([1, 3, 40])
        if chance.random() < 0.04:
            log.roll()
        epoch = epochs.setdefault(producer, 0)
        if chance.random() < 0.06:
            epoch = epochs[producer] = epoch + 1
            sequences[producer] = 0 if chance.random() < 0.8 else 5
        if chance.random() < 0.06 and epoch:
            epoch -= 1
        if chance.random() < 0.25:
            coordinator = max(coordinator + chance.choice([0, 0, 0, 1]) - (chance.random() < 0.03), 0)
            marker(log, producer, epoch, coordinator, chance.random() < 0.7, now)
            continue
        records = chance.choice([1, 2, 7])
        found = sequences.get(producer, 2**31 - 6 if producer == 3 else 0)
        if chance.random() < 0.08:
            found = (found + chance.choice([-3, 1, 4, 30])) % 2**31
        log.data(
            records,
            producer_id=producer,
            epoch=epoch,
            base_sequence=found,
            transactional=producer != 0,
            timestamp_ms=now,
        )
        sequences[producer] = (found + records) % 2**31


def marker(log, producer, epoch, coordinator, commit, now):
    from ottla.protocol.batch import build_marker

    log.append(build_marker(producer, epoch, coordinator, commit, now))


@pytest.fixture(scope="module")
def directories(reference, many_logs):
    return {"clean": reference("clean"), "random": many_logs}


TRANSACTION_COLUMNS = [
    "topic",
    "partition",
    "segment",
    "producerId",
    "producerEpoch",
    "fate",
    "firstOffset",
    "lastOffset",
    "markerOffset",
    "markerPosition",
    "markerEpoch",
    "coordinatorEpoch",
    "records",
    "batches",
    "size",
    "startTime",
    "endTime",
    "durationMs",
]


@pytest.mark.parametrize("name", ["clean", "random"])
def test_transactions_of_batches_are_those_of_the_view(spark, directories, name):
    from ottla.spark_jobs import transactions

    found = transactions(frame_of(spark, directories[name], "batches", topics="*"))
    assert found.columns == TRANSACTION_COLUMNS
    view = read_view(directories[name], "transactions", columns=tuple(TRANSACTION_COLUMNS), topics="*")
    assert rows_of(found) == in_order(tuple(row.values()) for row in view)
    types = dict(frame_of(spark, directories[name], "transactions").dtypes)
    assert found.dtypes == [(column, types[column]) for column in found.columns]


def walk(root):
    """Return (anomalies, gaps) of every partition from the walk, in the columns of the tables."""
    anomalies, gaps = [], []
    for log in list_partitions(str(root)):
        for step in PartitionWalk(log, DamageLog("fail")):
            for row in step.anomalies.tolist():
                kind = events.KINDS[row[events.ANOMALY_KIND]]
                place = row[events.ANOMALY_SEGMENT], row[events.ANOMALY_POSITION]
                who = row[events.ANOMALY_PRODUCER_ID], row[events.ANOMALY_EPOCH], row[events.ANOMALY_OFFSET]
                judged = row[events.ANOMALY_EXPECTED], row[events.ANOMALY_FOUND]
                anomalies.append((log.topic, log.partition, *place, *who, *judged, kind))
            for first, behind, segment in step.gaps.tolist():
                if first > log.segments[0].base_offset:
                    gaps.append((log.topic, log.partition, segment, first, behind, behind - first, "between"))
    return anomalies, gaps


@pytest.mark.parametrize("name", ["clean", "random"])
def test_sequence_zombie_and_gaps_are_those_of_the_walk(spark, directories, name):
    from ottla.spark_jobs import gaps, sequence, zombie

    batches = frame_of(spark, directories[name], "batches", topics="*").cache()
    anomalies, missing = walk(directories[name])
    assert rows_of(sequence(batches)) == in_order(row for row in anomalies if "sequence" in row[-1])
    assert rows_of(zombie(batches)) == in_order(
        row for row in anomalies if "zombie" in row[-1] or "coordinator" in row[-1]
    )
    assert [row for row in rows_of(gaps(batches)) if row[-1] == "between"] == in_order(missing)
    kinds = {row[-1] for row in anomalies}
    assert kinds == (set() if name == "clean" else set(events.KINDS) - {"plain batch in a transaction"})
    assert missing


def test_hanging_verdicts_depend_on_the_coordinator_state(spark, reference):
    from ottla.spark_jobs import hanging

    root = reference("unclean")
    opened = frame_of(spark, root, "transactions")
    state = frame_of(spark, root, "transaction_state")
    late = {row.transactionalId: row for row in hanging(opened, state, LATER).collect()}
    assert {name: (row.verdict, row.state) for name, row in late.items()} == {
        "hanging-01": ("overdue", "Ongoing"),
        "tv2-01": ("overdue", "Ongoing"),
    }
    assert late["hanging-01"].firstOffset == 898
    start = datetime.fromtimestamp(1795253826.426, UTC)
    soon = hanging(opened, state, start + timedelta(minutes=5)).collect()
    assert {row.transactionalId: row.verdict for row in soon}["hanging-01"] == "in time"
    without = state.where("transactionalId != 'hanging-01'")
    for is_whole, verdict in ((True, "forgotten"), (False, "unverifiable")):
        rows = hanging(opened, without, LATER, all_coordinators=is_whole).collect()
        assert {row.producerId: row.verdict for row in rows}[13] == verdict
    for is_whole in (True, False):
        alone = hanging(opened, as_of=LATER, all_coordinators=is_whole).collect()
        assert {(row.producerId, row.verdict, row.transactionalId) for row in alone} == {
            (13, "unverifiable", None),
            (14, "unverifiable", None),
        }
    early = hanging(opened, state, start - timedelta(days=1)).collect()
    assert {row.verdict for row in early} == {"unverifiable"}


def test_hanging_finds_a_decision_without_its_marker_only_in_v2(spark, reference):
    from pyspark.sql import functions as F

    from ottla.spark_jobs import hanging

    root = reference("unclean")
    found = frame_of(spark, root, "transactions")
    history = frame_of(spark, root, "transaction_state", history="true")
    ended = found.where("fate = 'committed' and firstOffset is not null")
    # Two versions: in V2 the marker has its own epoch, in V1 the epoch of the transactions before.
    chosen = [
        ended.where("topic = 'ledger-tv2' and partition = 0").orderBy(F.desc("markerOffset")).first(),
        ended.where("topic = 'audit-log' and partition = 1").orderBy(F.desc("markerOffset")).first(),
    ]
    is_it = F.lit(False)
    for row in chosen:
        place = (F.col("topic") == row.topic) & (F.col("partition") == row.partition)
        is_it = is_it | (place & (F.col("markerOffset") == row.markerOffset))
    is_it = is_it & F.col("firstOffset").isNotNull()
    nothing = {name: F.lit(None).cast(found.schema[name].dataType) for name in ("markerOffset", "endTime")}
    opened = found.where(is_it).withColumns({"fate": F.lit("open"), **nothing})
    mutated = found.where(~F.coalesce(is_it, F.lit(False))).unionByName(opened)
    rows = hanging(mutated, history, LATER).where("decision is not null or verdict = 'forgotten'").collect()
    assert {(row.topic, row.firstOffset): (row.verdict, row.decision) for row in rows} == {
        ("ledger-tv2", chosen[0].firstOffset): ("decided", "commit"),
        ("audit-log", chosen[1].firstOffset): ("forgotten", None),
    }


def test_torn_finds_the_changed_the_missing_and_the_invented_marker(spark, reference):
    from pyspark.sql import functions as F

    from ottla.spark_jobs import torn

    root = reference("unclean")
    history = frame_of(spark, root, "transaction_state", history="true")
    found = frame_of(spark, root, "transactions", topics="[!_]*,__consumer_offsets").cache()
    assert torn(found, history).collect() == []

    lost = found.where("topic = 'ledger' and partition = 1 and fate = 'committed' and firstOffset is not null")
    changed, dropped = lost.orderBy("markerOffset").limit(6).collect()[4:]
    is_it = {
        row.markerOffset: (F.col("topic") == "ledger")
        & (F.col("partition") == 1)
        & (F.col("markerOffset") == row.markerOffset)
        for row in (changed, dropped)
    }
    fate = F.when(is_it[changed.markerOffset], "aborted").otherwise(F.col("fate"))
    mutated = found.where(~F.coalesce(is_it[dropped.markerOffset], F.lit(False))).withColumn("fate", fate)
    invented = found.where(is_it[changed.markerOffset]).withColumn("markerEpoch", F.lit(7))
    invented = invented.withColumn("markerOffset", F.lit(10**6).cast("bigint"))
    rows = {row.kind: row for row in torn(mutated.unionByName(invented), history).collect()}
    assert set(rows) == {"torn", "missing", "undecided"}
    assert (rows["torn"].markerOffset, rows["torn"].decision, rows["torn"].marker) == (
        changed.markerOffset,
        "commit",
        "abort",
    )
    assert (rows["missing"].producerId, rows["missing"].decision, rows["missing"].marker) == (
        dropped.producerId,
        "commit",
        None,
    )
    assert rows["undecided"].markerOffset == 10**6
    assert {row.topic for row in rows.values()} == {"ledger"}


def test_shape_and_throughput_count_every_record_once(spark, reference):
    from ottla.spark_jobs import shape, throughput

    root = reference("clean")
    partitions = read_view(root, "partitions")
    found = {(row.topic, row.partition): row for row in shape(frame_of(spark, root, "transactions")).collect()}
    for row in partitions:
        mine = found.get((row["topic"], row["partition"]))
        if mine is None:
            assert row["committedTransactions"] == row["abortedTransactions"] == row["openTransactions"] == 0
            continue
        assert (mine.committed, mine.aborted, mine.open) == (
            row["committedTransactions"],
            row["abortedTransactions"],
            row["openTransactions"],
        )
        assert mine.records == row["committedRecords"] + row["abortedRecords"] + row["openRecords"]
        assert mine.recordsMedian <= mine.records95 <= mine.recordsMost
    rows = throughput(frame_of(spark, root, "batches"), "10 seconds").collect()
    assert sum(row.abortedRecords for row in rows) == sum(row["abortedRecords"] for row in partitions)
    assert sum(row.batches + row.controlBatches for row in rows) == sum(row["batches"] for row in partitions)
    parts = ("plainRecords", "committedRecords", "abortedRecords", "openRecords")
    assert sum(row.records for row in rows) == sum(row[part] for row in partitions for part in parts)
