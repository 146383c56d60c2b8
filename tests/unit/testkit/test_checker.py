"""The checker on valid histories, and on one history for each planted anomaly."""

import json
from pathlib import Path

import pytest

from lab.simulation.history import History
from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import assign_offsets
from ottla.protocol.internal_topics.offsets_records import OffsetValue, encode_offset_value, offset_key
from ottla.testkit import checker
from ottla.testkit.checks.operations import BrokenHistory, read_story
from ottla.testkit.scanner import scan_contents

COMMIT, ABORT = True, False


class Log:
    """A partition's log in the making."""

    def __init__(self):
        self.data = bytearray()
        self.end = 0
        self.sequences = {}

    def append(self, batch):
        assign_offsets(batch, self.end, 0)
        self.data += batch
        self.end += int.from_bytes(batch[23:27], "big") + 1

    def write(self, *values, pid=1, epoch=0, sequence=None, transactional=True):
        if sequence is None:
            sequence = self.sequences.get((pid, epoch), 0)
        self.sequences[pid, epoch] = sequence + len(values)
        records = [(None, value.encode(), ()) for value in values]
        self.append(
            build_batch(
                records,
                timestamp_ms=1,
                producer_id=pid,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    def commit_offset(self, offset, txn, pid=2, epoch=0):
        value = OffsetValue(offset, -1, txn, 1, -1)
        record = (offset_key("g", "in", 0), encode_offset_value(value), ())
        self.append(
            build_batch(
                [record], timestamp_ms=1, producer_id=pid, producer_epoch=epoch, base_sequence=0, transactional=True
            )
        )

    def mark(self, commit, pid=1, epoch=0, coordinator_epoch=0):
        self.append(build_marker(pid, epoch, coordinator_epoch, commit, 1))


class Case:
    """A small world: a producer that commits once and aborts once, a copier, readers. Plants change a part of it."""

    def __init__(self):
        self.history = History(lambda: 0.0)
        self.logs = {key: Log() for key in ("data/0", "in/0", "out/0", "__consumer_offsets/0")}

    def init(self, proc, pid, epoch, txn_id):
        op = self.history.invoke(proc, "init", txn_id=txn_id)
        self.history.ok(proc, "init", op, txn_id=txn_id, pid=pid, epoch=epoch)

    def send(self, proc, txn, key, values, at, pid=1, epoch=0, result="ok"):
        op = self.history.invoke(
            proc, "send", txn_id="t", txn=txn, pid=pid, epoch=epoch, mops=[["send", key, value] for value in values]
        )
        if result == "ok":
            mops = [["send", key, value, at + delta] for delta, value in enumerate(values)]
            self.history.ok(proc, "send", op, mops=mops)
        elif result == "fail":
            self.history.fail(proc, "send", op, 47)

    def end(self, proc, txn, commit, pid=1, epoch=0):
        op = self.history.invoke(proc, "end", txn=txn, commit=commit, pid=pid, epoch=epoch)
        self.history.ok(proc, "end", op)

    def poll(self, proc, key, start, behind, records, committed=True, txn=None):
        op = self.history.invoke(proc, "poll", committed=committed, txn=txn)
        self.history.ok(proc, "poll", op, mops=[["poll", key, start, behind, records]])

    def offsets(self, proc, txn, offset):
        op = self.history.invoke(
            proc, "offsets", txn=txn, group="g", pid=2, epoch=0, metadata=txn, mops=[["offset", "in/0", offset]]
        )
        self.history.ok(proc, "offsets", op)

    def fetch_offsets(self, offset):
        op = self.history.invoke("final", "fetch-offsets", group="g")
        self.history.ok("final", "fetch-offsets", op, mops=[["offset", "in/0", offset]])

    def found(self, **options):
        partitions = {key: scan_contents([(Path(key), bytes(log.data))]) for key, log in self.logs.items()}
        return {anomaly.kind for anomaly in checker.check(self.history.entries, partitions, **options)}


def producing(case, data):
    case.init("p", 1, 0, "t")
    case.send("p", "p/1", "data/0", ["a", "b"], 0)
    data.write("a", "b")
    case.end("p", "p/1", COMMIT)
    data.mark(COMMIT)
    case.send("p", "p/2", "data/0", ["c"], 3)
    data.write("c")
    case.end("p", "p/2", ABORT)
    data.mark(ABORT)


def copying(case, output="x<in/0/0"):
    case.send("feed", None, "in/0", ["i0"], 0, pid=9)
    case.logs["in/0"].write("i0", pid=9, transactional=False)
    case.init("c", 2, 0, "copy")
    case.poll("c", "in/0", 0, 1, [[0, "i0"]], txn="c/1")
    if output is not None:
        case.send("c", "c/1", "out/0", [output], 0, pid=2)
        case.logs["out/0"].write(output, pid=2)
    case.offsets("c", "c/1", 1)
    case.logs["__consumer_offsets/0"].commit_offset(1, "c/1")
    case.end("c", "c/1", COMMIT, pid=2)
    case.logs["out/0"].mark(COMMIT, pid=2)
    case.logs["__consumer_offsets/0"].mark(COMMIT, pid=2)


def final(case, unseen=()):
    """Read all logs once more. `unseen` are values that no reader gets."""
    case.history.note("final")
    for committed in (True, False):
        for key, log in case.logs.items():
            if key.startswith("__"):
                continue
            scanned = scan_contents([(Path(key), bytes(log.data))])
            isolation = "read_committed" if committed else "read_uncommitted"
            records = [
                [r.offset, r.value.decode()] for r in scanned.records(isolation) if r.value.decode() not in unseen
            ]
            case.poll("final", key, 0, 0, [])
            for record in records:
                case.poll("final", key, record[0], record[0] + 1, [record], committed)
    case.fetch_offsets(1)


def sound():
    case = Case()
    producing(case, case.logs["data/0"])
    copying(case)
    final(case)
    return case


PLANTS = {}


def plants(kind):
    def keep(plant):
        PLANTS[kind] = plant
        return plant

    return keep


@plants("broken-log")
def _(case):
    case.logs["data/0"].data[-1] ^= 1


@plants("offset-gap")
def _(case):
    log = case.logs["data/0"]
    log.end += 1
    log.mark(COMMIT, pid=5)


@plants("sequence-gap")
def _(case):
    log = case.logs["data/0"]
    case.send("p", "p/3", "data/0", ["d"], log.end)
    log.write("d", sequence=7)
    case.end("p", "p/3", COMMIT)
    log.mark(COMMIT)


@plants("coordinator-epoch")
def _(case):
    log = case.logs["data/0"]
    log.mark(COMMIT, coordinator_epoch=3)
    log.mark(COMMIT, coordinator_epoch=2)


@plants("phantom")
def _(case):
    case.logs["in/0"].write("ghost", pid=9, transactional=False)


@plants("duplicate")
def _(case):
    log = case.logs["data/0"]
    log.write("a")
    log.mark(COMMIT)


@plants("inconsistent-offsets")
def _(case):
    case.poll("rc", "data/0", 0, 2, [[0, "b"], [1, "a"]])


@plants("lost-write")
def _(case):
    case.send("feed", None, "in/0", ["gone"], 1, pid=9)


@plants("G1a")
def _(case):
    log = case.logs["data/0"]
    case.send("p", "p/3", "data/0", ["d"], log.end)
    log.write("d")
    case.end("p", "p/3", ABORT)
    log.mark(COMMIT)


@plants("torn-txn")
def _(case):
    case.send("p", "p/3", "data/0", ["d"], case.logs["data/0"].end)
    case.send("p", "p/3", "out/0", ["e"], case.logs["out/0"].end)
    for key, value, outcome in (("data/0", "d", COMMIT), ("out/0", "e", ABORT)):
        case.logs[key].write(value)
        case.logs[key].mark(outcome)
    case.history.invoke("p", "end", txn="p/3", commit=True, pid=1, epoch=0)


@plants("hanging-txn")
def _(case):
    case.send("p", "p/3", "data/0", ["d"], case.logs["data/0"].end)
    case.logs["data/0"].write("d")


@plants("zombie-write")
def _(case):
    case.init("q", 1, 1, "t")
    log = case.logs["data/0"]
    case.send("p", "p/3", "data/0", ["d"], log.end)
    log.write("d")
    log.mark(ABORT, epoch=1)


@plants("nonmonotonic-send")
def _(case):
    log = case.logs["in/0"]
    for value, at in (("later", 2), ("sooner", 1)):
        case.send("feed", None, "in/0", [value], at, pid=9)
    log.write("sooner", pid=9, transactional=False)
    log.write("later", pid=9, transactional=False)


@plants("int-nonmonotonic-send")
def _(case):
    op = case.history.invoke("feed", "send", txn=None, pid=9, epoch=0, mops=[["send", "in/0", v] for v in "xy"])
    case.history.ok("feed", "send", op, mops=[["send", "in/0", "x", 2], ["send", "in/0", "y", 1]])
    case.logs["in/0"].write("y", "x", pid=9, transactional=False)


@plants("precommitted-read")
def _(case):
    log = case.logs["data/0"]
    case.send("p", "p/3", "data/0", ["d"], log.end)
    case.poll("p", "data/0", log.end, log.end + 1, [[log.end, "d"]], txn="p/3")
    log.write("d")
    case.end("p", "p/3", COMMIT)
    log.mark(COMMIT)


@plants("early-read")
def _(case):
    log = case.logs["data/0"]
    case.send("p", "p/3", "data/0", ["d"], log.end)
    case.poll("rc", "data/0", log.end, log.end + 1, [[log.end, "d"]])
    log.write("d")
    case.end("p", "p/3", COMMIT)
    log.mark(COMMIT)


@plants("poll-skip")
def _(case):
    case.poll("rc", "data/0", 0, 5, [[0, "a"]])


@plants("int-poll-skip")
def _(case):
    log = case.logs["in/0"]
    case.send("feed", None, "in/0", ["i1", "i2"], 1, pid=9)
    log.write("i1", "i2", pid=9, transactional=False)
    case.poll("rc", "in/0", 0, 3, [[0, "i0"], [2, "i2"]])


@plants("nonmonotonic-poll")
def _(case):
    case.poll("rc", "data/0", 1, 2, [[0, "a"], [1, "b"]])


@plants("int-nonmonotonic-poll")
def _(case):
    case.poll("rc", "data/0", 0, 2, [[1, "b"], [0, "a"]])


@plants("unseen")
def _(case):
    case.unseen = ("b",)


@plants("skipped-input")
def _(case):
    case.logs["out/0"] = Log()


@plants("reprocessed")
def _(case):
    log = case.logs["out/0"]
    case.send("c", "c/2", "out/0", ["y<in/0/0"], log.end, pid=2)
    log.write("y<in/0/0", pid=2)
    case.end("c", "c/2", COMMIT, pid=2)
    log.mark(COMMIT, pid=2)


@plants("uncommitted-output")
def _(case):
    case.send("feed", None, "in/0", ["i1"], 1, pid=9)
    case.logs["in/0"].write("i1", pid=9, transactional=False)
    log = case.logs["out/0"]
    case.send("c", "c/2", "out/0", ["y<in/0/1"], log.end, pid=2)
    log.write("y<in/0/1", pid=2)
    case.end("c", "c/2", COMMIT, pid=2)
    log.mark(COMMIT, pid=2)


@plants("offset-divergence")
def _(case):
    case.fetch_offsets(4)


@plants("G1c")
def _(case):
    log = case.logs["data/0"]
    first, second = log.end, log.end + 2
    case.send("p", "p/3", "data/0", ["d"], first)
    case.send("q", "q/1", "data/0", ["e"], second, pid=3)
    case.poll("p", "data/0", second, second + 1, [[second, "e"]], txn="p/3")
    case.poll("q", "data/0", first, first + 1, [[first, "d"]], txn="q/1")
    log.write("d")
    log.mark(COMMIT)
    log.write("e", pid=3)
    log.mark(COMMIT, pid=3)
    case.end("p", "p/3", COMMIT)
    case.end("q", "q/1", COMMIT, pid=3)


@plants("G0")
def _(case):
    case.send("p", "p/3", "data/0", ["d", "f"], 5)
    case.send("q", "q/1", "data/0", ["e"], 6, pid=3)
    log = case.logs["data/0"]
    log.write("d")
    log.write("e", pid=3)
    log.write("f")
    log.mark(COMMIT)
    log.mark(COMMIT, pid=3)
    case.end("p", "p/3", COMMIT)
    case.end("q", "q/1", COMMIT, pid=3)


def test_a_sound_history_has_no_anomaly():
    assert sound().found(report_legal=True) == set()


def test_every_kind_of_anomaly_is_planted():
    assert set(PLANTS) == set(checker.KINDS)


@pytest.mark.parametrize("kind", checker.KINDS)
def test_a_planted_anomaly_is_named(kind):
    case = Case()
    case.unseen = ()
    producing(case, case.logs["data/0"])
    copying(case)
    PLANTS[kind](case)
    final(case, case.unseen)
    assert kind in case.found(report_legal=True)


@pytest.mark.parametrize("offset", [0, 3], ids=["committed", "aborted"])
def test_a_write_is_lost_if_its_offset_has_another_record(offset):
    case = sound()
    case.init("q", 1, 0, "t")
    case.send("q", "q/1", "data/0", ["d"], offset)
    case.end("q", "q/1", COMMIT)
    case.logs["data/0"].mark(COMMIT)
    assert case.found() == {"lost-write"}


def test_a_late_batch_explains_what_it_does_to_both_transactions():
    """The client gives up the batch in the first transaction, and it is written in the second. The broker then takes
    the second's own batch for its repetition."""
    case = Case()
    producing(case, case.logs["data/0"])
    copying(case)
    log = case.logs["data/0"]
    case.send("p", "p/3", "data/0", ["late"], None, result="info")
    case.end("p", "p/3", ABORT)
    case.history.note("cause", cause="late-produce", txn="p/4", of="p/3")
    case.send("p", "p/4", "data/0", ["own"], log.end)
    log.write("late")
    case.end("p", "p/4", COMMIT)
    log.mark(COMMIT)
    final(case)
    partitions = {key: scan_contents([(Path(key), bytes(log.data))]) for key, log in case.logs.items()}
    found = {(a.kind, *a.txns, a.cause) for a in checker.check(case.history.entries, partitions)}
    hit = {("G1a", "p/3"), ("early-read", "p/3"), ("lost-write", "p/4")}
    assert found == {(*each, "late-produce") for each in hit}


def test_an_anomaly_that_a_late_request_explains_has_a_cause():
    case = sound()
    log = case.logs["data/0"]
    case.send("p", "p/3", "data/0", ["d"], log.end)
    log.write("d")
    case.history.note("cause", cause="late-end", txn="p/3", of="p/2")
    log.mark(COMMIT)
    case.end("p", "p/3", ABORT)
    partitions = {"data/0": scan_contents([(Path("data/0"), bytes(log.data))])}
    causes = {(a.kind, a.cause) for a in checker.check(case.history.entries, partitions) if "p/3" in a.txns}
    assert causes == {("G1a", "late-end")}


def test_a_check_of_logs_only_finds_no_lost_write():
    case = sound()
    case.send("feed", None, "in/0", ["gone"], 1, pid=9)
    assert case.found() == {"lost-write"}
    assert case.found(logs_only=True) == set()


def test_a_history_that_completes_what_never_began_is_refused():
    with pytest.raises(BrokenHistory, match="completes no operation"):
        read_story([{"type": "ok", "f": "send", "op": 3, "proc": "p"}])


def test_the_checker_command_finds_a_lost_write_in_files(tmp_path, capsys):
    case = sound()
    case.send("feed", None, "in/0", ["gone"], 1, pid=9)
    history = tmp_path / "history.jsonl"
    history.write_text("".join(f"{json.dumps(entry)}\n" for entry in case.history.entries))
    for key, log in case.logs.items():
        directory = tmp_path / "data" / key.replace("/", "-")
        directory.mkdir(parents=True)
        (directory / f"{0:020d}.log").write_bytes(log.data)
    assert checker.main([str(history), str(tmp_path / "data")]) == 1
    assert "lost-write: gone was acknowledged on in/0 and is gone" in capsys.readouterr().out
