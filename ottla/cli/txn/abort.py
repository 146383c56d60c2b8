"""`ottla txn abort`: write the abort marker of a transaction that its coordinator forgot, in one partition. shell"""

import time

from ottla.cli.output import Output, ask_first, table_of
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.verdict import OpenTransaction, Standing, Verdict, age_ms, marker_epoch, remedies
from ottla.wire import Unanswered
from ottla.wire.cluster import LATEST, READ_COMMITTED, Cluster
from ottla.wire.judge_open import judge_open
from ottla.wire.login import error_name
from ottla.wire.topology import find_leader

DONE, REFUSED = 0, 1


def find(cluster: Cluster, topic: str, partition: int, start_offset: int) -> tuple[OpenTransaction, Verdict]:
    """Return the open transaction that begins at an offset, with the verdict on it. Raises Unanswered without one."""
    find_leader(cluster.topology([topic]), topic, partition)
    opened, gaps = cluster.open_transactions([(topic, partition)], of_newest=True)
    if gaps:
        raise Unanswered("; ".join(gaps))
    rows, _, gaps, _ = judge_open(cluster, [each for each in opened if each.start_offset == start_offset])
    if gaps:
        raise Unanswered("; ".join(gaps))
    for row in rows:
        return row
    others = ", ".join(str(each.start_offset) for each in sorted(opened, key=lambda each: each.start_offset)[:5])
    found = f"open transactions begin at {others}" if others else "no transaction is open there"
    raise Unanswered(f"{topic}-{partition} has no open transaction that begins at {start_offset}: {found}")


def abort(
    cluster: Cluster,
    place: tuple[str, int, int],
    output: Output,
    bootstrap: str,
    properties: str,
    agreed: bool,
) -> int:
    """Print the verdict, ask, and abort a forgotten transaction in its partition. Return the exit code.

    Any other transaction is left to its coordinator: an abort in one partition would tear it.
    """
    each, verdict = find(cluster, *place)
    now_ms = round(time.time() * 1000)
    output.table("transaction", *table_of([_row(each, verdict, now_ms)]))
    where = f"the transaction at {each.topic}-{each.partition}, offset {each.start_offset},"
    if verdict.standing is not Standing.FORGOTTEN:
        output.line(
            "answer", f"{where} is not aborted: it is {verdict.standing}, so an abort in one partition would tear it."
        )
        advice = remedies(each, verdict, bootstrap, now_ms, properties)
        output.table("remedies", ("advice", "command"), [tuple(remedy) for remedy in advice])
        output.close()
        return REFUSED
    ask_first(REFUSED, f"No coordinator will end {where} {verdict.reason}. Abort it in this partition?", agreed)
    if find(cluster, *place)[1].standing is not Standing.FORGOTTEN:
        raise Unanswered(f"{where} has changed meanwhile, and is not aborted: ask again")
    _write_marker(cluster, each)
    stable = cluster.offsets([each.place], LATEST, READ_COMMITTED).offsets.get(each.place)
    output.line("answer", f"{where} is aborted. The last stable offset of the partition is {stable}.")
    output.close()
    return DONE


def _write_marker(cluster: Cluster, each: OpenTransaction) -> None:
    """Send WriteTxnMarkers to the partition's leader. Raises Unanswered if it refuses."""
    marker = codec.request_class(ApiKey.WRITE_TXN_MARKERS).WritableTxnMarker
    row = marker(
        producer_id=each.producer_id,
        producer_epoch=each.epoch,
        transaction_result=False,
        topics=[marker.WritableTxnMarkerTopic(name=each.topic, partition_indexes=[each.partition])],
        coordinator_epoch=marker_epoch(each),
    )
    topology = cluster.newest_topology([each.topic])
    leader = find_leader(topology, each.topic, each.partition)
    reply = cluster.ask(topology.brokers[leader], codec.request_class(ApiKey.WRITE_TXN_MARKERS)(markers=[row]))
    errors = [row.error_code for one in reply.markers for topic in one.topics for row in topic.partitions]
    if errors != [0]:
        names = ", ".join(map(error_name, errors)) or "no answer about it"
        raise Unanswered(f"{each.topic}-{each.partition}: the leader did not write the marker: {names}")


def _row(each: OpenTransaction, verdict: Verdict, now_ms: int) -> dict[str, object]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "start_offset": each.start_offset,
        "producer_id": each.producer_id,
        "epoch": each.epoch,
        "transactional_id": verdict.known and verdict.known.transactional_id,
        "state": verdict.known and verdict.known.state,
        "standing": str(verdict.standing),
        "age_ms": age_ms(each, verdict, now_ms),
        "reason": verdict.reason,
    }
