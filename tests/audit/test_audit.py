"""The audit command: its output, its exit codes, the files that it writes, and the code that it ships to executors."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from tests.audit.mutations import PREPARE_COMMIT, coordinator_of, decision, id_of

ROOT = Path(__file__).parents[2]


def lines(out):
    return [json.loads(line) for line in out.splitlines()]


def wrong(out):
    return [one for one in lines(out) if one["severity"] != "info"]


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_open_transactions_of_kafkas_tools_are_all_that_is_wrong_with_kafkas_directories(run_audit, reference, name):
    code, out, err = run_audit(reference(name), "--format", "json")
    assert (code, err) == (1, "")
    names = ("check", "transactional_id", "producer_id", "topic", "partition", "offset")
    # Values of `kafka-transactions describe` and `describe-producers` in transactions.txt.
    assert sorted(tuple(one[name] for name in names) for one in wrong(out)) == [
        ("hanging", "hanging-01", 13, "ledger", 2, 898),
        ("hanging", "tv2-01", 14, "ledger-tv2", 1, 151),
    ]


def test_a_finding_has_the_documented_keys(run_audit, reference):
    _, out, _ = run_audit(reference("clean"), "--format", "json")
    keys = ["check", "severity", "topic", "partition", "offset", "producer_id", "transactional_id", "message", "action"]
    assert all([*one][:9] == keys and set(one) <= {*keys, "file", "position"} for one in lines(out))


def test_directory_while_nothing_was_overdue_is_clean(run_audit, reference):
    code, out, _ = run_audit(reference("clean"), "--as-of", "1795253827000")
    assert code == 0
    assert "Nothing is broken. 1 transaction is open; readers of 1 partition wait for 11 offsets." in out
    assert "as of 1795253827000" in out


def test_partitions_are_those_that_kafkas_consumer_saw(run_audit, reference, consume, tmp_path):
    run_audit(reference("unclean"), "--output", tmp_path, "--output-format", "json")
    rows = [json.loads(line) for line in (tmp_path / "partitions/part-0.json").read_text().splitlines()]
    partitions = {f"{row['topic']}-{row['partition']}": row for row in rows}
    ends, records = consume("read_uncommitted")
    kinds = ("plainRecords", "committedRecords", "abortedRecords", "openRecords")
    for name, end in ends.items():
        row = partitions[name]
        assert row["logEnd"] == end
        assert sum(row[kind] for kind in kinds) == sum(f"{one['topic']}-{one['partition']}" == name for one in records)
    for name, end in consume("read_committed")[0].items():
        assert partitions[name]["lastStableOffset"] == end


def test_text_has_a_line_per_partition_and_the_command_to_run_next(run_audit, reference):
    code, out, err = run_audit(reference("clean"))
    assert (code, err) == (1, "")
    line = next(line for line in out.splitlines() if re.match(r"ledger +2 ", line))
    assert line.split("│")[1].split() == ["0", "909", "898", "◂"]
    assert line.split("│")[2].split() == ["223", "64", "1"]
    assert line.split("│")[3].split() == ["471", "147", "4", "·"]
    assert "ottla txn why ledger 2 -b HOST:PORT" in out
    assert "kafka-transactions.sh" not in out
    assert "__transaction_state" not in out
    assert "\033" not in out
    assert out.index("Findings: 2 hanging") < out.index("topic ")


def test_chosen_topics_and_checks_alone_are_reported(run_audit, reference):
    code, out, _ = run_audit(reference("clean"), "--topics", "audit-log,__*")
    assert code == 0
    assert "Clean" in out
    assert "__consumer_offsets" in out
    code, out, _ = run_audit(reference("clean"), "--checks", "torn, gaps", "--format", "json")
    assert code == 0
    assert {one["check"] for one in lines(out)} == {"gaps"}


def test_damage_exits_with_1_and_names_the_place(run_audit, write_log):
    log = write_log()
    positions = [log.data(5) for _ in range(3)]
    data = bytearray(log.path.read_bytes())
    data[positions[1] + 70] ^= 1
    log.path.write_bytes(data)
    code, out, _ = run_audit(write_log.root, "--checks", "damage")
    assert code == 1
    assert f"in {log.path} position {positions[1]}\n" in out
    code, out, _ = run_audit(write_log.root, "--format", "json", "--checks", "damage")
    (found,) = lines(out)
    assert (found["file"], found["position"], found["offset"]) == (str(log.path), positions[1], 5)


def test_fail_on_error_lets_warnings_pass(run_audit, write_log):
    log = write_log()
    log.data(1, producer_id=7, base_sequence=0, transactional=False)
    log.data(1, producer_id=7, epoch=1, base_sequence=5, transactional=False)
    assert run_audit(write_log.root, "--checks", "sequence")[0] == 1
    assert run_audit(write_log.root, "--checks", "sequence", "--fail-on", "error")[0] == 0


def test_torn_tail_is_reported_and_is_no_finding(run_audit, write_log):
    log = write_log()
    log.data(5)
    with log.path.open("ab") as file:
        file.write(b"\0" * 30)
    code, out, _ = run_audit(write_log.root, "--all")
    assert code == 0
    assert "torn tail" in out


def test_open_transaction_below_the_log_start_is_known_from_the_snapshot(run_audit, write_log):
    from ottla.protocol.snapshot import ProducerEntry, encode_snapshot

    log = write_log(base_offset=100)
    log.data(3)
    snapshot = encode_snapshot([ProducerEntry(5, 0, 9, 90, 0, 1_700_000_000_000, -1, 81)])
    (log.folder / f"{100:020d}.snapshot").write_bytes(snapshot)
    code, out, _ = run_audit(write_log.root, "--format", "json", "--checks", "hanging")
    (found,) = [line for line in lines(out) if line["check"] == "hanging"]
    assert (code, found["producer_id"], found["offset"], found["severity"]) == (0, 5, 81, "info")


def test_cut_at_offsets_shows_what_a_consumer_would_have_seen(run_audit, write_log):
    log = write_log()
    log.data(2, producer_id=7)  # 0, 1
    log.marker(7, commit=True)  # 2
    log.data(3, producer_id=8)  # 3, 4, 5
    log.marker(8, commit=True)  # 6
    _, out, _ = run_audit(write_log.root, "--as-of", "ledger:0:6", "--topics", "ledger")
    line = next(line for line in out.splitlines() if line.startswith("ledger "))
    assert line.split("│")[1].split() == ["0", "6", "3", "◂"]
    assert line.split("│")[2].split() == ["1", "·", "1"]
    assert "open then" in out


def test_a_high_watermark_below_the_log_end_cuts_nothing(run_audit, write_log):
    from tests.spark.views import read_view

    log = write_log()
    log.data(2, producer_id=7)
    log.marker(7, commit=True)
    (write_log.root / "replication-offset-checkpoint").write_text("0\n1\nledger 0 1\n")
    assert len(read_view(write_log.root, "records", columns=("offset",))) == 2
    (row,) = read_view(write_log.root, "partitions", columns=("highWatermark", "logEnd", "lastStableOffset"))
    assert tuple(row.values()) == (1, 3, 3)
    # The same as of an offset: the cut alone decides.
    for arguments in ((), ("--as-of", "ledger:0:3")):
        code, out, _ = run_audit(write_log.root, "--topics", "ledger", "--checks", "gaps,torn,hanging", *arguments)
        assert code == 0
        assert re.search(r"^ledger +0 │ +0 +3 +3 ", out, re.MULTILINE), out
    (write_log.root / "replication-offset-checkpoint").write_text("0\n1\nledger 0 5\n")
    assert run_audit(write_log.root, "--topics", "ledger", "--checks", "gaps")[0] == 1


def test_since_leaves_out_segments_that_a_snapshot_replaces(run_audit, write_log):
    from ottla.protocol.indexes import TIME_ENTRY
    from ottla.protocol.snapshot import encode_snapshot

    log = write_log()
    log.data(2, timestamp_ms=1_000)
    log.path.with_suffix(".timeindex").write_bytes(TIME_ENTRY.pack(1_000, 1))
    log.roll()
    (log.folder / f"{2:020d}.snapshot").write_bytes(encode_snapshot([]))
    log.data(3, timestamp_ms=5_000)
    arguments = ("--topics", "ledger", "--checks", "damage")
    since = run_audit(write_log.root, "--since", "1970-01-01T00:00:04", *arguments)[1]
    everything = run_audit(write_log.root, "--since", "1970-01-01T00:00:00.900", *arguments)[1]
    starts = [re.search(r"^ledger +0 │ +(\d+) +5 ", out, re.MULTILINE)[1] for out in (since, everything)]
    assert starts == ["2", "0"]


def test_directories_of_several_brokers_are_one_cluster(run_audit, reference, tmp_path):
    """The coordinators' log is on one broker, the partitions on the other."""
    whole = reference("clean")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copy(whole / "meta.properties", tmp_path / name)
        shutil.copy(whole / "cleaner-offset-checkpoint", tmp_path / name)
    for folder in whole.iterdir():
        if folder.is_dir():
            to = tmp_path / ("one" if folder.name.startswith("__transaction_state") else "two")
            shutil.copytree(folder, to / folder.name)
    _, out, _ = run_audit(tmp_path / "one", tmp_path / "two", "--format", "json")
    assert {one["transactional_id"] for one in wrong(out)} == {"hanging-01", "tv2-01"}
    _, out, _ = run_audit(tmp_path / "two", "--format", "json", "--checks", "torn")
    assert {one["severity"] for one in lines(out)} == {"info"}
    assert all("unverifiable" in one["message"] for one in lines(out))


def test_directories_of_two_clusters_are_refused(run_audit, reference, tmp_path):
    for name in ("one", "two", "three"):
        shutil.copytree(reference("clean"), tmp_path / name)
    properties = tmp_path / "two" / "meta.properties"
    (ours,) = re.findall(r"^cluster.id=(.+)$", properties.read_text(), re.MULTILINE)
    properties.write_text(properties.read_text().replace(ours, "another"))
    (tmp_path / "three" / "meta.properties").unlink()
    code, out, err = run_audit(tmp_path / "three", tmp_path / "one", tmp_path / "two")
    assert (code, out) == (2, "")
    assert f"{tmp_path / 'two'} is of cluster another, and {tmp_path / 'one'} of {ours}: audit each by itself" in err
    assert run_audit(tmp_path / "three", tmp_path / "one", "--checks", "damage")[0] != 2


def test_replicas_are_audited_each_for_itself(run_audit, reference, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(reference("clean"), tmp_path / name)
    path = tmp_path / "two" / "plain-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    arguments = ("--topics", "plain,__transaction_state", "--as-of", "1795253827000")
    _, out, _ = run_audit(tmp_path / "one", tmp_path / "two", *arguments, "--format", "json", "--checks", "damage")
    (found,) = wrong(out)
    assert found["message"].endswith(f"; replica in {tmp_path / 'two'}")
    _, out, _ = run_audit(tmp_path / "one", tmp_path / "two", *arguments)
    rows = re.findall(r"^plain.* 0 │(?:.*\n.*)*?$", out, re.MULTILINE)
    assert len(rows) == 2
    unfolded = "".join(re.sub(" +[0-9].*", "", line) for line in out.splitlines())
    assert all(f"plain({tmp_path}/{name})" in unfolded.replace(" ", "") for name in ("one", "two"))


def test_replicas_are_no_copies_and_count_once(run_audit, write_log, tmp_path):
    source, target = write_log("orders"), write_log("settlements")
    source.data(4)
    target.data(4, producer_id=7)
    target.marker(7, commit=True)
    # The replica of one side alone, and one that ends earlier.
    replica = tmp_path / "replica"
    shutil.copytree(write_log.root, replica, ignore=shutil.ignore_patterns("orders-0"))
    target.data(1, producer_id=7, base_sequence=4, value=b"open")
    arguments = ("--copies", "orders=settlements,key", "--format", "json", "--all")
    both = run_audit(write_log.root, replica, *arguments, "--checks", "copies,shape,stale")
    alone = run_audit(write_log.root, *arguments, "--checks", "copies,shape,stale")
    assert both == alone
    assert "4 committed records of orders compared with 4 of settlements" in both[1]


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_tables_are_written_for_others_to_read(run_audit, reference, tmp_path, form):
    import pyarrow.json
    import pyarrow.parquet

    code, out, _ = run_audit(reference("clean"), "--format", "json", "--output", tmp_path, "--output-format", form)
    assert code == 1
    read = pyarrow.parquet.read_table if form == "parquet" else pyarrow.json.read_json
    findings = read(tmp_path / f"findings/part-0.{form}").to_pylist()
    assert [(one["check"], one["offset"]) for one in findings] == [(one["check"], one["offset"]) for one in lines(out)]
    transactions = [row for path in (tmp_path / "transactions").iterdir() for row in read(path).to_pylist()]
    ledger = [row for row in transactions if (row["topic"], row["partition"]) == ("ledger", 2)]
    counts = {fate: sum(row["fate"] == fate for row in ledger) for fate in ("committed", "aborted", "open")}
    assert counts == {"committed": 223, "aborted": 64, "open": 1}
    assert all(row["transactionalId"] for row in ledger if row["fate"] != "open")
    assert run_audit(reference("clean"), "--output", tmp_path)[0] == 2


def test_copies_are_compared_by_key_and_by_header(run_audit, write_log):
    source, target = write_log("orders"), write_log("settlements")
    source.data(4)  # keys k0 to k3
    target.data(3, producer_id=7)  # k0 to k2, aborted
    target.marker(7, commit=False)
    target.data(3, producer_id=7)  # k0 to k2
    target.marker(7, commit=True)
    target.data(1)  # k0 again
    code, out, _ = run_audit(
        write_log.root, "--copies", "orders=settlements,key", "--checks", "copies", "--format", "json"
    )
    found = {one["offset"]: one for one in wrong(out)}
    assert code == 1
    assert set(found) == {0, 3}
    assert "1 input with 2 committed outputs: orders-0@0, settlements-0@4, settlements-0@8" in found[0]["message"]
    assert "1 input with 0 committed outputs" in found[3]["message"]
    _, out, _ = run_audit(
        write_log.root, "--copies", "orders=settlements,header:id", "--checks", "copies", "--format", "json"
    )
    assert "8 records of orders and settlements without a header id" in wrong(out)[0]["message"]


def test_segments_are_listed_again_if_one_is_deleted_during_the_audit(run_audit, write_log, monkeypatch, tmp_path):
    import pyarrow.parquet

    from ottla.audit import pipeline, tasks

    log = write_log()
    log.data(2, producer_id=7)
    log.marker(7, commit=True)
    first = log.path
    log.roll()
    log.data(3)
    seen = []

    def scan(work):
        if not seen:
            first.unlink()
        seen.append(work)
        return tasks.scan(work)

    monkeypatch.setattr(pipeline, "tasks", SimpleNamespace(**{**vars(tasks), "scan": scan}))
    output = tmp_path / "tables"
    code, out, err = run_audit(write_log.root, "--topics", "ledger", "--checks", "damage", "--output", output)
    assert (code, err, len(seen)) == (0, "", 2)
    assert re.search(r"^ledger +0 │ +3 +6 ", out, re.MULTILINE)
    assert [path.name for path in (output / "transactions").iterdir()] == ["part-0.parquet"]
    assert pyarrow.parquet.read_table(output / "transactions/part-0.parquet").num_rows == 0


@pytest.mark.parametrize("meanwhile", [True, False])
def test_offsets_compacted_during_the_audit_are_not_reported_lost(run_audit, write_log, monkeypatch, meanwhile):
    from ottla.audit import pipeline, request, tasks
    from ottla.audit.topics import Topics

    log = write_log()
    log.data(2)
    log.next_offset += 3
    log.data(2)
    checkpoint = write_log.root / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n1\nledger 0 1\n")
    (write_log.root / "replication-offset-checkpoint").write_text("0\n1\nledger 0 7\n")

    def scan(work):
        if meanwhile:
            checkpoint.write_text("0\n1\nledger 0 6\n")
        return tasks.scan(work)

    monkeypatch.setattr(pipeline, "tasks", SimpleNamespace(**{**vars(tasks), "scan": scan}))
    monkeypatch.setattr(request, "read_topics", lambda _: Topics(frozenset({("ledger", 0)}), frozenset({"ledger"})))
    code, out, _ = run_audit(write_log.root, "--checks", "gaps", "--format", "json")
    assert code == (0 if meanwhile else 1)
    assert ("3 compacted" if meanwhile else "3 lost") in out


def test_a_decision_compacted_during_the_audit_is_not_missing(run_audit, reference, monkeypatch, tmp_path):
    from ottla.audit import pipeline, tasks

    root = Path(shutil.copytree(reference("clean"), tmp_path / "data"))
    asked = (root, "--checks", "torn", "--format", "json", "--run-on", "here")
    assert not wrong(run_audit(*asked)[1])
    log, indexes = coordinator_of(root, id_of(root, 14))
    index = decision(log, indexes, PREPARE_COMMIT, 5)
    end = log.header(-1).next_offset

    def read_history(work):
        if len(log.batches) == count:
            del log.batches[index]
            log.save()
            name, number = log.name.rsplit("-", 1)
            checkpoint = root / "cleaner-offset-checkpoint"
            version, _, *entries = checkpoint.read_text().splitlines()
            entries = [one for one in entries if not one.startswith(f"{name} {number} ")]
            entries.append(f"{name} {number} {end}")
            checkpoint.write_text("\n".join([version, str(len(entries)), *entries, ""]))
        return tasks.read_history(work)

    count = len(log.batches)
    monkeypatch.setattr(pipeline, "tasks", SimpleNamespace(**{**vars(tasks), "read_history": read_history}))
    assert not wrong(run_audit(*asked)[1])
    assert len(log.batches) == count - 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none"], "No such file or directory"),
        (["."], "not a log directory"),
        ([".", "--checks", "torn,tron"], "no check tron"),
        ([".", "--as-of", "yesterday"], "--as-of yesterday"),
        ([".", "--since", "yesterday"], "--since yesterday"),
        (
            [".", "--checks", "torn", "--copies", "a=b,key"],
            "--copies: --checks leaves out the check copies",
        ),
        ([".", "--output-format", "json"], "--output-format needs --output DIR"),
        ([".", "--overwrite"], "--overwrite needs --output DIR"),
        ([".", "--since", "20261122"], "too early for milliseconds since 1970"),
        ([".", "--as-of", "1795253827"], "too early for milliseconds since 1970"),
        ([".", "--copies", "orders"], "--copies orders"),
        ([".", "--checks", "copies"], "--copies INPUT=OUTPUT,key"),
    ],
)
def test_an_argument_that_prevents_the_audit_exits_with_2_and_one_line(run_audit, tmp_path, arguments, said):
    code, out, err = run_audit(tmp_path / arguments[0], *arguments[1:])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_offsets_without_a_record_for_consumers_are_counted(run_audit, write_log):
    log = write_log()
    log.data(5)
    log.data(2, producer_id=7)
    log.marker(7, commit=True)
    (told,) = lines(run_audit(write_log.root, "--checks", "gaps", "--format", "json")[1])
    assert told["message"] == "of offsets 0 to 7, without a record for consumers: 1 control"


def test_future_times_are_noted_on_stderr(run_audit, write_log):
    write_log().data(1)
    code, out, err = run_audit(write_log.root, "--as-of", "9999-12-31", "--format", "json")
    assert (code, err) == (
        0,
        "ottla audit: --as-of is in the future: ages are those at that time, everything else is as it is now\n",
    )
    code, out, err = run_audit(write_log.root, "--since", "9999-12-31")
    assert (code, err) == (
        0,
        "ottla audit: --since is in the future: only the segments that every audit needs are read\n",
    )
    assert out.startswith("Audit of ")
    assert run_audit(write_log.root, "--as-of", "1980-01-01", "--since", "1979-01-01")[2] == ""


def test_a_file_given_as_directory_is_named_in_the_error(run_audit, tmp_path):
    (tmp_path / "file").write_text("")
    assert run_audit(tmp_path / "file") == (2, "", f"ottla audit: {tmp_path / 'file'}: Not a directory\n")


def test_usage_exits_with_2(capsys):
    from ottla.spark_jobs.audit import main

    assert main([]) == 2
    assert main(["DIR", "--format", "yaml"]) == 2
    assert main(["DIR", "--output-format", "avro"]) == 2
    assert main(["DIR", "--producer-id-expiration-ms", "-1"]) == 2
    assert main(["--help"]) == 0


def test_executor_reports_a_missing_module_in_one_line(monkeypatch):
    from ottla.audit.tasks import Settings, Work, scan
    from ottla.scan import needs
    from ottla.scan.ranges import LogRange

    monkeypatch.setattr(needs, "MODULES", (*needs.MODULES, "no_such_module"))
    needs.lacking.cache_clear()
    try:
        result = scan(Work(LogRange(0, 0, "ledger", 0, 0, ()), Settings((), 0, None, 0, None), None, 0))
    finally:
        needs.lacking.cache_clear()
    assert re.search(r"lacks no_such_module: pip install 'ottla\[spark\]'", result.error)
    assert "\n" not in result.error


def test_topics_that_match_nothing_are_not_reported_as_clean(run_audit, reference):
    directory = reference("clean")
    assert run_audit(directory, "--topics", "ledgre,x-*") == (
        2,
        "",
        f"ottla audit: {directory}: no topic matches ledgre, x-*; "
        "there are append-time, audit-log, codec-gzip, codec-lz4, codec-snappy and 8 more\n",
    )
