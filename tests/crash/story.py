"""The histories of the workers in the form that `ottla.testkit.checker` judges."""

from oracle import ABORTED, COMMITTED, PLAIN

from ottla.testkit.checker import check
from ottla.testkit.scanner import scan_partition


def entries(history):
    """One operation for each write, then the end of its transaction; nobody was told producer ids and epochs."""
    lines = []

    def add(kind, f, op, writer, **fields):
        lines.append({"i": len(lines), "t": 0.0, "proc": writer, "type": kind, "f": f, "op": op, **fields})

    op = 0
    for number, transaction in enumerate(history):
        name = None if transaction.outcome == PLAIN else f"{transaction.writer}/{number}"
        for write in transaction.writes:
            op += 1
            key = f"{write.partition.topic}/{write.partition.number}"
            add("invoke", "send", op, transaction.writer, txn=name, mops=[["send", key, write.value]])
            if write.offset is not None:
                add("ok", "send", op, transaction.writer, mops=[["send", key, write.value, write.offset]])
        if name is not None and transaction.outcome != ABORTED:
            op += 1
            add("invoke", "end", op, transaction.writer, txn=name, commit=True)
            if transaction.outcome == COMMITTED:
                add("ok", "end", op, transaction.writer)
    return lines


def anomalies(history, data_dir):
    """Every anomaly that the checker finds in a stopped broker's directory."""
    partitions = {}
    for directory in sorted(data_dir.iterdir()):
        topic, dash, index = directory.name.rpartition("-")
        if directory.is_dir() and dash and index.isdigit():
            partitions[f"{topic}/{index}"] = scan_partition(directory)
    return check(entries(history), partitions)
