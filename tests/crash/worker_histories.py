"""The histories of the workers in the form that `ottla.testkit.checker` checks."""

from oracle import COMMITTED, PLAIN, UNKNOWN, Span
from workload import GROUP

from ottla.testkit.checker import OFFSETS_TOPIC, check
from ottla.testkit.scanner import scan_partition


class Story:
    """Operations with their times, without producer ids and epochs, which the clients do not report."""

    def __init__(self):
        self._events, self._count = [], 0

    def add(self, f, proc, span, asked, told=None):
        """Add an operation. Without an end its result is unknown."""
        self._count += 1
        common = {"f": f, "op": self._count, "proc": proc}
        self._events.append((span.began, {**common, "type": "invoke", **asked}))
        if span.ended is not None:
            self._events.append((span.ended, {**common, "type": "ok", **(told or {})}))

    def transaction(self, transaction):
        name = None if transaction.outcome == PLAIN else transaction.name
        for polled in transaction.polls:
            self.poll(transaction.writer, polled.span, True, polled.rows, name)
        for write in transaction.writes:
            if write.span.began is not None:
                mop = ["send", key_of(write.partition), write.value]
                asked = {"txn": name, "mops": [mop]}
                self.add("send", transaction.writer, write.span, asked, {"mops": [[*mop, write.offset]]})
        if transaction.sent_positions.began is not None:
            mops = [["offset", key_of(partition), offset] for partition, offset in transaction.positions.items()]
            asked = {"txn": name, "group": GROUP, "metadata": name, "mops": mops}
            self.add("offsets", transaction.writer, transaction.sent_positions, asked)
        if transaction.outcome in (COMMITTED, UNKNOWN):
            self.add("end", transaction.writer, transaction.commit, {"txn": name, "commit": True})

    def poll(self, proc, span, committed, rows, txn=None):
        mops = [
            ["poll", key_of(partition), start, behind, [list(row) for row in found]]
            for partition, (start, behind, found) in rows.items()
        ]
        self.add("poll", proc, span, {"committed": committed, "txn": txn}, {"mops": mops})

    def final(self, proc, findings):
        """Add all records from the start to the end, by isolation level, and the group's positions."""
        for committed, found in ((True, findings.committed), (False, findings.uncommitted)):
            rows = {partition: (0, findings.ends[partition][0], each) for partition, each in found.items()}
            self.poll(proc, self._afterwards(), committed, rows)
        mops = [["offset", key_of(partition), at or -1] for partition, at in findings.positions.items()]
        self.add("fetch-offsets", proc, self._afterwards(), {"group": GROUP}, {"mops": mops})

    def note_final(self):
        self._events.append((self._afterwards().began, {"type": "note", "f": "final"}))

    def _afterwards(self):
        last = max((when for when, _ in self._events), default=0)
        return Span(last + 1, last + 2)

    def entries(self):
        in_order = sorted(self._events, key=lambda event: event[0])
        return [{"i": number, "t": when / 1e6, **entry} for number, (when, entry) in enumerate(in_order)]


def key_of(partition):
    return f"{partition.topic}/{partition.number}"


def entries(workers, finals):
    """Return the workers' operations, then the final reads of each library, given as {library: Findings}."""
    story = Story()
    for worker in workers:
        for transaction in worker.history:
            story.transaction(transaction)
        for polled in worker.polls:
            story.poll(worker.name, polled.span, True, polled.rows)
    story.note_final()
    for library, findings in finals.items():
        story.final(library, findings)
    return story.entries()


def scan(data_dir):
    """Return the partitions of a stopped broker's directory, by key."""
    partitions = {}
    for directory in sorted(data_dir.iterdir()):
        topic, dash, index = directory.name.rpartition("-")
        if directory.is_dir() and dash and index.isdigit():
            partitions[f"{topic}/{index}"] = scan_partition(directory)
    return partitions


def anomalies(told, partitions):
    """Return every anomaly that the checker finds. The offsets topic is compacted: it may have gaps."""
    found = check(told, partitions)
    return [each for each in found if not (each.kind == "offset-gap" and each.detail.startswith(OFFSETS_TOPIC))]
