"""Functions for notebooks, from DataFrame to DataFrame over the views, in Spark SQL alone. free

They work on DataFrames of the views `batches`, `transactions` and `transaction_state` from anywhere: this process, an
export, several brokers combined. Column names and types are those of the views (docs/data-source.md); the
docstring of a function lists the columns that it returns, in order. Rows come in no particular order.
"""

from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from ottla.verdict import OVERDUE_AFTER_MS, SKEW_MS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

# The default of Kafka's `producer.id.expiration.ms`.
EXPIRATION_MS = 86_400_000
# The files of a running broker are not read at one instant, so transactions younger than this get no verdict.
SETTLED_MS = 60_000

_LOG = ("topic", "partition")
_PRODUCER = (*_LOG, "producerId")
_KEYS = (*_PRODUCER, "epoch")
_CIRCLE = 2**31
_PREPARED = ("PrepareCommit", "PrepareAbort")


def transactions(batches: "DataFrame") -> "DataFrame":
    """Return every marker with the transaction that it ends, and the transactions without a marker.

    topic, partition, segment (of the marker, or of the first batch), producerId, producerEpoch (of the data), fate
    (committed, aborted, open), firstOffset and lastOffset (of the data; null if the marker ends nothing), markerOffset,
    markerPosition, markerEpoch, coordinatorEpoch (null while open), records, batches, size (bytes), startTime, endTime,
    durationMs. As the view of this name, but without data that only a snapshot or the coordinator's log has.
    """
    before = _by_offset(*_PRODUCER).rowsBetween(Window.unboundedPreceding, -1)
    is_marker = _is_marker()
    numbered = (
        _of_producers(batches)
        .where(is_marker | _is_transactional_data())
        .withColumn("number", F.coalesce(F.sum(is_marker.cast("int")).over(before), F.lit(0)))
    )
    data = ~is_marker
    grouped = numbered.groupBy(*_PRODUCER, "number").agg(
        F.coalesce(F.max(F.when(is_marker, F.col("segment"))), F.min("segment")).alias("segment"),
        F.max_by("producerEpoch", F.when(data, F.col("baseOffset"))).alias("producerEpoch"),
        F.max(F.when(is_marker, F.col("controlType"))).alias("kind"),
        F.min(F.when(data, F.col("baseOffset"))).alias("firstOffset"),
        F.max(F.when(data, F.col("lastOffset"))).alias("lastOffset"),
        F.max(F.when(is_marker, F.col("baseOffset"))).alias("markerOffset"),
        F.max(F.when(is_marker, F.col("position"))).alias("markerPosition"),
        F.max(F.when(is_marker, F.col("producerEpoch"))).alias("markerEpoch"),
        F.max(F.when(is_marker, F.col("coordinatorEpoch"))).alias("coordinatorEpoch"),
        F.sum(F.when(data, F.col("recordCount")).otherwise(0)).alias("records"),
        F.sum(data.cast("bigint")).alias("batches"),
        F.sum(F.when(data, F.col("size")).otherwise(0).cast("bigint")).alias("size"),
        F.min_by(F.coalesce("baseTimestamp", "maxTimestamp"), F.when(data, F.col("baseOffset"))).alias("startTime"),
        F.max(F.when(is_marker, F.col("maxTimestamp"))).alias("endTime"),
    )
    fate = F.when(F.col("kind").isNull(), "open").when(F.col("kind") == "commit", "committed").otherwise("aborted")
    return grouped.select(
        *_LOG,
        "segment",
        "producerId",
        "producerEpoch",
        fate.alias("fate"),
        *("firstOffset", "lastOffset", "markerOffset", "markerPosition", "markerEpoch", "coordinatorEpoch"),
        *("records", "batches", "size", "startTime", "endTime"),
        (F.unix_millis("endTime") - F.unix_millis("startTime")).alias("durationMs"),
    )


def hanging(
    transactions: "DataFrame",
    transaction_state: "DataFrame | None" = None,
    as_of: datetime | None = None,
    *,
    all_coordinators: bool = False,
) -> "DataFrame":
    """Return open transactions with the coordinator's view of them at `as_of` (default: now).

    topic, partition, producerId, producerEpoch, transactionalId, firstOffset, lastOffset, records, ageMs, timeoutMs,
    state (the coordinator's; null if it does not know the producer), verdict: `in time`; `ending` (decided, its marker
    is on its way); `overdue` (open beyond the timeout: its coordinator has to abort it); `forgotten` (the coordinator
    holds no such transaction open); `decided` (it was completed, its marker is missing here); `unverifiable` (no record
    of a coordinator shows it, or it began in the future or too recently), decision (commit, abort; null: none is
    known). `all_coordinators` says that `transaction_state` has all partitions of `__transaction_state`: only then is a
    producer that it does not know forgotten. Decisions are known only with its history. Only `overdue`, `forgotten` and
    `decided` block read_committed consumers for good; abort only what is forgotten.
    """
    now = F.current_timestamp() if as_of is None else F.lit(as_of)
    opened = transactions.where(F.col("fate") == "open").select(
        *_LOG, "producerId", "producerEpoch", "firstOffset", "lastOffset", "records", "startTime"
    )
    if transaction_state is None:
        nothing = {"transactionalId": "string", "timeoutMs": "int", "state": "string"} | dict.fromkeys(
            ("began", "moved"), "timestamp"
        )
        stated = opened.select("*", *(F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()))
        stated = stated.withColumn("holds", F.lit(False)).withColumn("decision", F.lit(None).cast("string"))
    else:
        stated = _with_coordinator_state(opened, transaction_state)
        stated = _with_undone(stated, transactions, transaction_state, now)
    age = F.unix_millis(now) - F.unix_millis(F.coalesce(F.when(F.col("holds"), F.col("began")), F.col("startTime")))
    is_known = F.lit(all_coordinators and transaction_state is not None) | F.col("state").isNotNull()
    moved = F.unix_millis(now) - F.unix_millis(F.coalesce("moved", "startTime"))
    is_settled = (age > SETTLED_MS) & (moved > SETTLED_MS)
    verdict = (
        F.when(F.col("decision").isNotNull(), "decided")
        .when(~F.col("holds"), F.when(is_known & is_settled, "forgotten").otherwise("unverifiable"))
        .when(F.col("state").isin(*_PREPARED), "ending")
        .when(age < -SKEW_MS, "unverifiable")
        .when(age <= F.col("timeoutMs") + OVERDUE_AFTER_MS, "in time")
        .otherwise("overdue")
    )
    names = (*_PRODUCER, "producerEpoch", "transactionalId", "firstOffset", "lastOffset", "records")
    return stated.select(*names, age.alias("ageMs"), "timeoutMs", "state", verdict.alias("verdict"), "decision")


def _with_coordinator_state(opened: "DataFrame", transaction_state: "DataFrame") -> "DataFrame":
    """Return `opened` with transactionalId, timeoutMs, state, began, and whether the coordinator holds it open."""
    last = _last_states(transaction_state)
    states = last.select(
        F.explode(F.array_distinct(F.array(F.col("producerId"), F.coalesce("previousProducerId", "producerId")))).alias(
            "knownAs"
        ),
        *("transactionalId", "timeoutMs", "state", "partitions"),
        F.col("producerId").alias("ownerId"),
        F.col("producerEpoch").alias("ownerEpoch"),
        F.col("startTime").alias("began"),
        F.col("updateTime").alias("moved"),
    )
    # Several transactional ids may have had a producer id. Prefer the id that has it now.
    mine = Window.partitionBy("knownAs").orderBy((F.col("ownerId") == F.col("knownAs")).desc(), "transactionalId")
    states = states.withColumn("rank", F.row_number().over(mine)).where("rank = 1")
    lists = F.exists(
        "partitions",
        lambda one: (one["topic"] == F.col("topic")) & F.array_contains(one["partitions"], F.col("partition")),
    )
    ongoing = (
        (F.col("state") == "Ongoing")
        & (F.col("ownerEpoch") == F.col("producerEpoch"))
        & (F.col("ownerId") == F.col("producerId"))
    )
    holds = F.coalesce(lists & (F.col("state").isin(*_PREPARED) | ongoing), F.lit(False))
    return opened.join(states, opened["producerId"] == states["knownAs"], "left").withColumn("holds", holds)


def _with_undone(
    stated: "DataFrame", transactions: "DataFrame", transaction_state: "DataFrame", now: "Column"
) -> "DataFrame":
    """Add the decision whose marker each transaction lacks, where that is certain.

    A decision with a newer epoch than the data can only belong to this transaction. A decision with the epoch of the
    data may belong to the previous transaction, unless the last marker in the partition is older than it.
    """
    last = transactions.groupBy(*_PRODUCER).agg(F.max("endTime").alias("lastMarker"))
    first = transactions.groupBy(*_LOG).agg(F.min("endTime").alias("firstMarker"))
    decided = (
        _decisions(transaction_state)
        .where("completed")
        .groupBy(*_PRODUCER)
        .agg(F.max(F.struct("decidedAt", "epoch", "decision")).alias("newest"))
    )
    skew = F.expr(f"interval {SKEW_MS} milliseconds")
    at, epoch = F.col("newest.decidedAt"), F.col("newest.epoch")
    is_on_it = (epoch > F.col("producerEpoch")) | (
        (epoch == F.col("producerEpoch")) & (at > F.coalesce("lastMarker", "firstMarker") + skew)
    )
    is_settled = F.unix_millis(now) - F.unix_millis(at) > SETTLED_MS
    decision = F.when(~F.col("holds") & is_on_it & is_settled, F.col("newest.decision"))
    joined = stated.join(decided, [*_PRODUCER], "left").join(last, [*_PRODUCER], "left").join(first, [*_LOG], "left")
    return joined.withColumn("decision", decision).drop("newest", "lastMarker", "firstMarker")


def torn(transactions: "DataFrame", transaction_state: "DataFrame") -> "DataFrame":
    """Compare the coordinator's decisions with the markers: `transaction_state` with option("history", "true").

    topic, partition, producerId, producerEpoch, transactionalId, decision (commit, abort; null: none is known),
    decidedAt, marker (commit, abort; null: none is there), markerOffset, kind: `torn` (the marker contradicts the
    decision), `missing` (decided and completed, but without its marker here), `undecided` (a marker that no coordinator
    decided). A marker belongs to the newest decision of its producer id and epoch that is not later than it. Cases that
    the coordinator's compacted log, or a partition's log start, can no longer prove are left out. Markers that
    compaction removed from a compacted topic seem missing.
    """
    decisions = _decisions(transaction_state)
    markers = transactions.where("markerOffset is not null").select(
        *_PRODUCER,
        F.col("markerEpoch").alias("epoch"),
        F.col("endTime").alias("at"),
        F.when(F.col("fate") == "committed", "commit").otherwise("abort").alias("marker"),
        "markerOffset",
    )
    matched = _with_decisions(markers, decisions)
    named = _last_states(transaction_state).select("producerId", "transactionalId", F.col("partition").alias("home"))
    matched = matched.join(named.dropDuplicates(["producerId"]), "producerId", "left")
    matched = matched.join(_known_since(transaction_state), "home", "left")
    wrong = matched.where(
        (F.col("decision") != F.col("marker"))
        | (F.col("decision").isNull() & (F.col("at") > F.col("knownSince")) & F.col("transactionalId").isNotNull())
    )
    # Producers may set any timestamp: it counts if the transaction took no longer than the longest timeout.
    longest = transaction_state.agg(F.coalesce(F.max("timeoutMs"), F.lit(0)).alias("longestMs"))
    in_time = F.col("durationMs").between(F.lit(0), F.col("longestMs")) | (F.col("fate") == "open")
    began = F.when(in_time, F.col("startTime")).otherwise(F.col("endTime"))
    first_seen = transactions.crossJoin(longest).groupBy(*_LOG).agg(F.min(began).alias("firstSeen"))
    missing = (
        decisions.where("completed")
        .join(matched.select(*_KEYS, "decidedAt").distinct(), [*_KEYS, "decidedAt"], "left_anti")
        .join(first_seen, list(_LOG))
        .where(F.col("decidedAt") > F.col("firstSeen"))
    )
    late = wrong.select(*_KEYS, "markerOffset", "at", F.col("marker").alias("decision")).join(
        missing.select(*_KEYS, "decision", "decidedAt"), [*_KEYS, "decision"]
    )
    skew = F.expr(f"interval {SKEW_MS} milliseconds")
    paired = late.where(F.col("decidedAt").between(F.col("at"), F.col("at") + skew))
    wrong = wrong.join(paired, [*_KEYS, "markerOffset"], "left_anti")
    missing = missing.join(paired, [*_KEYS, "decidedAt"], "left_anti").withColumns(
        {"marker": F.lit(None).cast("string"), "markerOffset": F.lit(None).cast("bigint"), "kind": F.lit("missing")}
    )
    kind = F.when(F.col("decision").isNull(), "undecided").otherwise("torn")
    names = ("transactionalId", "decision", "decidedAt", "marker", "markerOffset", "kind")
    picked = [*_PRODUCER, F.col("epoch").alias("producerEpoch"), *names]
    return wrong.withColumn("kind", kind).select(*picked).unionByName(missing.select(*picked))


def _with_decisions(markers: "DataFrame", decisions: "DataFrame") -> "DataFrame":
    """Return each marker with the decision that it carries out: the newest of its producer id and epoch up to it."""
    events = decisions.select(*_KEYS, F.col("decidedAt").alias("at"), "decision", "decidedAt")
    both = events.unionByName(markers, allowMissingColumns=True)
    up_to_it = Window.partitionBy(*_KEYS).orderBy("at", F.col("markerOffset").isNotNull(), "markerOffset")
    up_to_it = up_to_it.rowsBetween(Window.unboundedPreceding, 0)
    newest = [F.last(name, ignorenulls=True).over(up_to_it).alias(name) for name in ("decision", "decidedAt")]
    return both.select(*_KEYS, "marker", "markerOffset", "at", *newest).where("marker is not null")


def _decisions(history: "DataFrame") -> "DataFrame":
    """Prepare records, one row for each partition in them; `completed`: a later record of the id shows it done."""
    of_id = Window.partitionBy("transactionalId").orderBy("offset")
    prepared = (
        history.withColumn("completed", F.lead("state").over(of_id).isNotNull())
        .where(F.col("state").isin(*_PREPARED))
        .select(
            "transactionalId",
            "producerId",
            F.col("producerEpoch").alias("epoch"),
            F.when(F.col("state") == "PrepareCommit", "commit").otherwise("abort").alias("decision"),
            F.col("updateTime").alias("decidedAt"),
            "completed",
            F.explode("partitions").alias("listed"),
        )
    )
    return prepared.select(
        *("transactionalId", "producerId", "epoch", "decision", "decidedAt", "completed"),
        F.col("listed.topic").alias("topic"),
        F.explode("listed.partitions").alias("partition"),
    )


def _known_since(history: "DataFrame") -> "DataFrame":
    """Return the time since which a coordinator's partition (`home`) has all records: after its last gap."""
    before = F.lag("offset").over(Window.partitionBy("partition").orderBy("offset"))
    holes = history.select(
        "partition", "timestamp", (F.col("offset") - F.coalesce(before, F.lit(-1)) > 1).alias("hole")
    )
    since = F.max(F.when(F.col("hole"), F.col("timestamp")))
    return holes.groupBy(F.col("partition").alias("home")).agg(
        F.coalesce(since, F.timestamp_micros(F.lit(0))).alias("knownSince")
    )


def _last_states(transaction_state: "DataFrame") -> "DataFrame":
    newest = Window.partitionBy("transactionalId").orderBy(F.col("offset").desc())
    ranked = transaction_state.withColumn("newest", F.row_number().over(newest)).where("newest = 1")
    return ranked.drop("newest").where(~F.col("isTombstone"))


def sequence(batches: "DataFrame", expiration_ms: int = EXPIRATION_MS) -> "DataFrame":
    """Return data batches whose sequence does not follow that of the producer's previous batch.

    topic, partition, segment, position, producerId, producerEpoch, baseOffset, expected, found (sequences; expected
    wraps from 2^31-1 to 0), kind: `sequence gap`, `duplicate sequence`, `sequence not restarted` (a new epoch that does
    not begin at 0). Not reported: the first batch of a producer, gaps that offsets missing from the log explain,
    producers that were idle for `expiration_ms`, batches of an older epoch (see `zombie`), and batches of coordinators.
    """
    checked = _with_highest_epoch(_with_missing(batches.where(~F.col("topic").startswith("__")), expiration_ms))
    is_sound = F.col("producerEpoch") >= F.coalesce("highest", F.lit(-1))
    checked = checked.where(~_is_marker() & (F.col("baseSequence") >= 0) & is_sound)
    lives = _by_offset(*_PRODUCER)
    checked = checked.withColumn("life", F.sum(F.col("forgotten").cast("int")).over(lives))
    mine = _by_offset(*_PRODUCER, "producerEpoch", "life")
    step = F.col("baseSequence") - F.lag("baseSequence").over(mine)
    turn = F.when(step < -_CIRCLE // 2, 1).when(step > _CIRCLE // 2, -1).otherwise(0)
    checked = checked.withColumn("first", F.col("baseSequence") + _CIRCLE * F.sum(turn.cast("bigint")).over(mine))
    behind = F.col("first") + F.col("lastOffset") - F.col("baseOffset") + 1
    followed = F.max(behind).over(mine.rowsBetween(Window.unboundedPreceding, -1))
    checked = checked.withColumn("followed", followed)
    checked = checked.withColumn("wanted", F.coalesce("followed", F.when(F.col("lowest") < F.col("producerEpoch"), 0)))
    ahead = F.pmod(F.col("first") - F.col("wanted"), F.lit(_CIRCLE))
    explained = F.col("missingSince") >= ahead
    kind = (
        F.when((F.col("first") == F.col("wanted")) | F.col("wanted").isNull() | F.col("forgotten"), None)
        .when(F.col("followed").isNotNull() & (F.col("first") < F.col("wanted")), "duplicate sequence")
        .when(explained, None)
        .when(F.col("followed").isNull(), "sequence not restarted")
        .otherwise("sequence gap")
    )
    return (
        checked.withColumn("kind", kind)
        .where("kind is not null")
        .select(
            *(*_LOG, "segment", "position", "producerId", "producerEpoch", "baseOffset"),
            F.pmod("wanted", F.lit(_CIRCLE)).cast("int").alias("expected"),
            F.col("baseSequence").alias("found"),
            "kind",
        )
    )


def _with_missing(batches: "DataFrame", expiration_ms: int) -> "DataFrame":
    """Add columns to producers' batches: `missingSince` (offsets missing since the last batch), `forgotten`."""
    of_log, of_producer = _by_offset(*_LOG), _by_offset(*_PRODUCER)
    gap = F.greatest(F.col("baseOffset") - F.lag("lastOffset").over(of_log) - 1, F.lit(0))
    own_clock = F.when(F.col("isControl") | (F.col("timestampType") == 1), F.col("maxTimestamp"))
    found = batches.withColumn("gap", F.coalesce(gap, F.lit(0)))
    found = found.withColumn("missing", F.sum("gap").over(of_log)).withColumn("clock", F.max(own_clock).over(of_log))
    found = _of_producers(found).where(_is_marker() | ~F.col("isControl"))
    is_data = ~F.col("isControl")
    since = F.last(F.when(is_data, F.col("missing")), ignorenulls=True).over(
        of_producer.rowsBetween(Window.unboundedPreceding, -1)
    )
    idle = F.unix_millis(F.greatest("clock", "maxTimestamp")) - F.unix_millis(F.lag("maxTimestamp").over(of_producer))
    is_open = F.lag(_is_transactional_data()).over(of_producer)
    forgotten = is_data & F.coalesce((idle >= expiration_ms) & ~is_open, F.lit(False))
    since = F.coalesce(since, F.first("missing").over(of_producer))
    return found.withColumn("missingSince", F.col("missing") - since).withColumn("forgotten", forgotten)


def _with_highest_epoch(batches: "DataFrame") -> "DataFrame":
    before = _by_offset(*_PRODUCER).rowsBetween(Window.unboundedPreceding, -1)
    return batches.withColumn("highest", F.max("producerEpoch").over(before)).withColumn(
        "lowest", F.min("producerEpoch").over(before)
    )


def zombie(batches: "DataFrame") -> "DataFrame":
    """Return batches and markers of producers that were already fenced.

    topic, partition, segment, position, producerId, producerEpoch, baseOffset, expected (the highest epoch before; of
    the last kind the coordinator epoch), found, kind: `zombie epoch` (data of an older epoch than data before), `zombie
    after marker` (than the marker that fenced it), `zombie marker`, `coordinator epoch went back`.
    """
    before = _by_offset(*_PRODUCER).rowsBetween(Window.unboundedPreceding, -1)
    is_marker = _is_marker()
    checked = _with_highest_epoch(_of_producers(batches).where(is_marker | ~F.col("isControl")))
    checked = checked.withColumn(
        "markerEpoch", F.last(F.when(is_marker, F.col("producerEpoch")), ignorenulls=True).over(before)
    ).withColumn("coordinator", F.last(F.when(is_marker, F.col("coordinatorEpoch")), ignorenulls=True).over(before))
    is_old = F.col("producerEpoch") < F.col("highest")
    of_epoch = (
        F.when(is_old & is_marker, "zombie marker")
        .when(is_old & (F.col("markerEpoch") == F.col("highest")), "zombie after marker")
        .when(is_old, "zombie epoch")
    )
    names = (*_LOG, "segment", "position", "producerId", "producerEpoch", "baseOffset")
    epochs = checked.withColumn("kind", of_epoch).select(
        *names, F.col("highest").alias("expected"), F.col("producerEpoch").alias("found"), "kind"
    )
    regressed = checked.where(is_marker & (F.col("coordinatorEpoch") < F.col("coordinator"))).select(
        *names,
        F.col("coordinator").alias("expected"),
        F.col("coordinatorEpoch").alias("found"),
        F.lit("coordinator epoch went back").alias("kind"),
    )
    return epochs.where("kind is not null").unionByName(regressed)


def gaps(batches: "DataFrame") -> "DataFrame":
    """Return offsets without a record.

    topic, partition, segment, fromOffset, toOffset (not in it), missing (offsets), kind: `between` batches (missing is
    all of them), or `inside` a batch, from which compaction removed records. Offsets missing before the first batch
    of a partition are not reported: only the log start shows whether records should be there.
    """
    previous = F.lag("lastOffset").over(_by_offset(*_LOG))
    between = batches.withColumn("fromOffset", previous + 1).where(F.col("fromOffset") < F.col("baseOffset"))
    inside = batches.where(~F.col("isControl") & (F.col("recordCount") <= F.col("lastOffset") - F.col("baseOffset")))
    span = F.col("lastOffset") - F.col("baseOffset") + 1
    return between.select(
        *(*_LOG, "segment", "fromOffset"),
        F.col("baseOffset").alias("toOffset"),
        (F.col("baseOffset") - F.col("fromOffset")).alias("missing"),
        F.lit("between").alias("kind"),
    ).unionByName(
        inside.select(
            *(*_LOG, "segment"),
            F.col("baseOffset").alias("fromOffset"),
            (F.col("lastOffset") + 1).alias("toOffset"),
            (span - F.col("recordCount")).alias("missing"),
            F.lit("inside").alias("kind"),
        )
    )


def shape(transactions: "DataFrame") -> "DataFrame":
    """Return statistics of the ended transactions of each partition.

    topic, partition, committed, aborted, open (transactions with data), records, size (bytes, without markers),
    abortedShare (of the ended, 0 to 1), recordsMedian, records95, recordsMost, durationMedianMs, duration95Ms,
    durationMostMs, markerShare (markers among all offsets that the transactions take, 0 to 1).
    """
    with_data = F.col("firstOffset").isNotNull()
    ended = with_data & (F.col("fate") != "open")
    counts = {fate: F.sum((with_data & (F.col("fate") == fate)).cast("bigint")) for fate in ("committed", "aborted")}
    markers = F.count("markerOffset")
    records, duration = F.when(ended, F.col("records")), F.when(ended, F.col("durationMs"))
    return transactions.groupBy(*_LOG).agg(
        *(column.alias(name) for name, column in counts.items()),
        F.sum((F.col("fate") == "open").cast("bigint")).alias("open"),
        F.sum("records").alias("records"),
        F.sum("size").alias("size"),
        F.try_divide(counts["aborted"], counts["committed"] + counts["aborted"]).alias("abortedShare"),
        F.percentile(records, F.lit(0.5)).alias("recordsMedian"),
        F.percentile(records, F.lit(0.95)).alias("records95"),
        F.max(records).alias("recordsMost"),
        F.percentile(duration, F.lit(0.5)).alias("durationMedianMs"),
        F.percentile(duration, F.lit(0.95)).alias("duration95Ms"),
        F.max(duration).alias("durationMostMs"),
        F.try_divide(markers, markers + F.sum("records")).alias("markerShare"),
    )


def throughput(batches: "DataFrame", interval: str = "1 minute") -> "DataFrame":
    """Return counts of writes in each `interval` (by the batches' largest timestamps), and of the aborted ones.

    topic, partition, start (timestamp), records, size (bytes), batches, controlBatches, abortedRecords, abortedSize.
    """
    data, aborted = ~F.col("isControl"), F.col("fate") == "aborted"
    return (
        batches.groupBy(*_LOG, F.window("maxTimestamp", interval).alias("window"))
        .agg(
            F.sum(F.when(data, F.col("recordCount")).otherwise(0)).alias("records"),
            F.sum(F.when(data, F.col("size")).otherwise(0)).alias("size"),
            F.sum(data.cast("bigint")).alias("batches"),
            F.sum(F.col("isControl").cast("bigint")).alias("controlBatches"),
            F.sum(F.when(aborted, F.col("recordCount")).otherwise(0)).alias("abortedRecords"),
            F.sum(F.when(aborted, F.col("size")).otherwise(0)).alias("abortedSize"),
        )
        .select(
            *_LOG,
            F.col("window.start").alias("start"),
            *("records", "size", "batches", "controlBatches", "abortedRecords", "abortedSize"),
        )
    )


def _by_offset(*keys: str) -> "WindowSpec":
    return Window.partitionBy(*keys).orderBy("baseOffset")


def _of_producers(batches: "DataFrame") -> "DataFrame":
    return batches.where(F.col("producerId") >= 0)


def _is_marker() -> "Column":
    return F.coalesce(F.col("controlType").isin("commit", "abort"), F.lit(False))


def _is_transactional_data() -> "Column":
    return F.col("isTransactional") & ~F.col("isControl")
