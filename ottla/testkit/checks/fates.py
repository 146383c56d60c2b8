"""Comparison of each write in the logs with the outcome that its client got. pure"""

from collections.abc import Iterator

from ottla.testkit.checks.logs import VISIBLE, Logs, Place
from ottla.testkit.checks.operations import ABORTED, COMMITTED, FAIL, OK, Anomaly, FullHistory, Operation, Transaction

OPEN = "open"


def check_fates(story: FullHistory, logs: Logs) -> Iterator[Anomaly]:
    """Find lost writes, readable aborted writes, torn transactions, duplicates and misplaced values."""
    sent: dict[str, tuple[str, Operation]] = {}
    for send in story.of("send"):
        for key, value in send.sent:
            sent[value] = (key, send)
    yield from _check_places(sent, logs, story)
    for send in story.of("send"):
        yield from _check_acks(send, logs)
        if send.txn is None:
            yield from _check_plain(send, logs)
        elif send.status == FAIL:
            for key, value in send.sent:
                if logs.visible(value):
                    yield Anomaly("G1a", f"{value} was refused on {key} and can be read", frozenset({send.txn}))
    for transaction in story.transactions.values():
        yield from _check_transaction(transaction, logs)
    yield from _check_order(story)
    yield from _check_fencing(story)


def _check_places(sent: dict[str, tuple[str, Operation]], logs: Logs, story: FullHistory) -> Iterator[Anomaly]:
    scope = story.note("scope")
    for value, found in logs.places.items():
        known = sent.get(value)
        places = found if scope is None or known is not None else _own_places(found, scope["begins"])
        txns = _names(known[1] if known else None)
        for place in places:
            if known is None or known[0] != place.key:
                yield Anomaly("phantom", f"{value} is at {place.key}@{place.offset}, where no client sent it", txns)
            if place.fate == OPEN:
                yield Anomaly("hanging-txn", f"{value} at {place.key}@{place.offset} is undecided", txns)
        visible = [place for place in places if place.fate in VISIBLE]
        if len(visible) > 1:
            where = ", ".join(f"{place.key}@{place.offset}" for place in visible)
            yield Anomaly("duplicate", f"{value} is at {where}", txns)


def _own_places(places: list[Place], begins: dict[str, int]) -> list[Place]:
    """Return the places that only clients of the history can have written."""
    return [place for place in places if place.key in begins and place.offset >= begins[place.key]]


def _check_acks(send: Operation, logs: Logs) -> Iterator[Anomaly]:
    for (key, value), offset in zip(send.sent, send.offsets, strict=True):
        if offset is not None and offset >= 0 and logs.places.get(value) and logs.value_at(key, offset) != value:
            detail = f"{value} was acknowledged at {key}@{offset}, where {logs.value_at(key, offset)} is"
            yield Anomaly("inconsistent-offsets", detail, _names(send))


def _check_plain(send: Operation, logs: Logs) -> Iterator[Anomaly]:
    for key, value in send.sent:
        found = logs.visible(value)
        if send.status == OK and not found:
            yield Anomaly("lost-write", f"{value} was acknowledged on {key} and is gone")
        elif send.status == FAIL and found:
            yield Anomaly("G1a", f"{value} was refused on {key} and is there")


def _check_transaction(transaction: Transaction, logs: Logs) -> Iterator[Anomaly]:
    name, outcome = transaction.name, transaction.outcome
    me = frozenset({name})
    fates: dict[str, str] = {}
    for send in transaction.sends:
        for key, value in send.sent:
            places = logs.places.get(value, [])
            fate = places[0].fate if places else "absent"
            if places:
                fates[f"{value} at {key}@{places[0].offset}"] = fate
            if outcome == COMMITTED and send.status == OK and fate not in VISIBLE:
                yield Anomaly("lost-write", f"{value} of {name}, which was committed, is {fate}", me)
            if outcome == ABORTED and fate in VISIBLE:
                yield Anomaly("G1a", f"{value} of {name}, which was aborted or never committed, can be read", me)
    if any(commit.invoke.get("metadata") for commit in transaction.commits):
        # A late copy of the request may be in a later transaction; then the original still counts.
        rows = [row for row in logs.committed if row.metadata == name]
        counted = [row for row in rows if row.fate in VISIBLE]
        for row in counted or rows:
            fates[f"offset {row.offset} of {row.key}"] = row.fate
    kinds = set(fates.values())
    if len(kinds) > 1:
        yield Anomaly("torn-txn", f"{name} ({outcome}): {fates}", me)


def _check_order(story: FullHistory) -> Iterator[Anomaly]:
    """Check that the records of a client in a partition are in the order of sending."""
    last: dict[tuple[str, str], int] = {}
    for send in story.of("send"):
        within = -1
        for (key, value), offset in zip(send.sent, send.offsets, strict=True):
            if offset is None or offset < 0:
                continue
            before = last.get((send.proc, key), -1)
            if offset <= within:
                yield Anomaly("int-nonmonotonic-send", f"{value} at {key}@{offset} after {within}", _names(send))
            elif offset <= before:
                yield Anomaly("nonmonotonic-send", f"{value} at {key}@{offset} after {before}", _names(send))
            within = offset
            last[send.proc, key] = max(before, offset)


def _check_fencing(story: FullHistory) -> Iterator[Anomaly]:
    """Check that operations of an older instance fail after a newer one is initialised."""
    inits = [op for op in story.of("init") if op.status == OK and op.result.get("txn_id") is not None]
    owners = {(op.result["pid"], op.result["epoch"]): op for op in inits}
    for end in story.of("end"):  # with transactions V2 the epoch moves with each transaction
        if end.status == OK and "pid" in end.result and end.producer in owners:
            owners.setdefault((end.result["pid"], end.result["epoch"]), owners[end.producer])
    for operation in story.operations:
        if operation.f not in ("send", "end", "offsets") or operation.status != OK:
            continue
        mine = owners.get(operation.producer)
        if mine is None:
            continue
        for other in inits:
            newer = other.result["txn_id"] == mine.result["txn_id"] and other.began > mine.ended
            if newer and other.ended < operation.began:
                detail = f"{operation.f} {operation.op} of {operation.producer} succeeded after {other.proc} took over"
                yield Anomaly("zombie-write", detail, _names(operation))
                break


def _names(operation: Operation | None) -> frozenset[str]:
    return frozenset({operation.txn}) if operation is not None and operation.txn is not None else frozenset()
