"""The stream of alerts and its job: each hanging transaction has one alert, and one more when it no longer hangs."""

import os
import shutil
import signal

import pytest

from tests.documented import all_seen, check_lines
from tests.spark.streaming import Stream

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000


@pytest.fixture
def alerts():
    """Return `alerts(root)`, which returns the new rows of a continued query, as (event, topic, first offset)."""
    query = Stream()

    def run(root):
        run.rows = query.run(path=str(root), view="hanging")
        return sorted((row["event"], row["topic"], row["firstOffset"]) for row in run.rows)

    return run


def test_each_alert_is_given_once_and_ends_once(alerts, write_log):
    ledger, audit = write_log("ledger"), write_log("audit")
    forget(write_log("__transaction_state"), 7, 8)
    ledger.data(1)
    ledger.data(3, producer_id=7, timestamp_ms=HOUR_MS)
    assert alerts(write_log.root) == [("hanging", "ledger", 1)]
    assert alerts.rows[0]["producerId"] == 7
    assert "abort --topic ledger --partition 0 --start-offset 1" in alerts.rows[0]["action"]
    assert alerts(write_log.root) == []
    ledger.roll()
    audit.data(1, producer_id=8, timestamp_ms=HOUR_MS)
    ledger.marker(7, commit=False)
    assert alerts(write_log.root) == [("ended", "ledger", 1), ("hanging", "audit", 0)]
    assert alerts(write_log.root) == []


def forget(log, *producer_ids):
    """Append the coordinator's last records of these ids: aborted, with no later transaction."""
    for number, producer_id in enumerate(producer_ids):
        coordinate(log, (5, 0, HOUR_MS), producer_id=producer_id, name=f"order-{number}")


def coordinate(log, *steps, producer_id=7, name="order-1"):
    """Append states of an id: (status, epoch, time in ms)."""
    from ottla.protocol.batch import build_record_batch
    from ottla.protocol.internal_topics.transaction_records import (
        TransactionValue,
        encode_transaction_value,
        transaction_key,
    )

    for status, epoch, now_ms in steps:
        places = (("ledger", (0,)),) if status in (1, 2, 3) else ()
        value = TransactionValue(producer_id, epoch, 60_000, status, places, now_ms, now_ms)
        log.append(build_record_batch(transaction_key(name), encode_transaction_value(value), now_ms))


def verdicts(root, now_ms):
    from ottla.spark_jobs.options import read_options
    from ottla.spark_jobs.stream.watch import Watch

    options = read_options({"path": str(root), "view": "hanging"})
    return [(str(one.verdict), one.decided) for one in Watch(options).find_hanging(now_ms)]


def test_a_decision_of_another_epoch_than_the_data_is_certain(write_log):
    write_log("ledger").data(1, producer_id=7, epoch=3, timestamp_ms=HOUR_MS)
    coordinator = write_log("__transaction_state")
    coordinate(coordinator, (1, 3, HOUR_MS), (2, 4, HOUR_MS + 10))
    assert verdicts(write_log.root, 2 * HOUR_MS) == []
    coordinate(coordinator, (4, 4, 2 * HOUR_MS))
    assert verdicts(write_log.root, 2 * HOUR_MS + 5) == [("decided", "COMMIT")]


def test_a_decision_of_the_same_epoch_is_certain_if_no_marker_came_since(write_log):
    ledger, coordinator = write_log("ledger"), write_log("__transaction_state")
    coordinate(coordinator, (1, 3, HOUR_MS), (3, 3, HOUR_MS), (5, 3, HOUR_MS))
    ledger.marker(7, commit=False, epoch=3, timestamp_ms=HOUR_MS + 2)
    ledger.data(1, producer_id=7, epoch=3, timestamp_ms=HOUR_MS)
    # Written late, after the marker: the coordinator has no record of it.
    assert verdicts(write_log.root, 2 * HOUR_MS) == [("forgotten", None)]
    later_ms = HOUR_MS + 60_000
    coordinate(coordinator, (1, 3, later_ms), (2, 3, later_ms), (4, 3, later_ms))
    assert verdicts(write_log.root, 2 * HOUR_MS) == [("decided", "COMMIT")]


def test_a_transaction_missing_from_the_coordinator_log_gives_no_alert(write_log):
    write_log("ledger").data(1, producer_id=7, timestamp_ms=HOUR_MS)
    coordinator = write_log("__transaction_state")
    coordinate(coordinator, (1, 0, HOUR_MS), producer_id=9)
    assert verdicts(write_log.root, 1000 * HOUR_MS) == []


def test_a_transaction_that_ends_during_the_check_gives_no_alert(write_log, monkeypatch):
    from ottla.spark_jobs.stream.watch import Watch

    ledger, coordinator = write_log("ledger"), write_log("__transaction_state")
    ledger.data(1, producer_id=7, timestamp_ms=HOUR_MS)
    coordinate(coordinator, (1, 0, HOUR_MS))
    read = Watch._history

    def ends_meanwhile(self):
        coordinate(coordinator, (3, 0, HOUR_MS), (5, 0, HOUR_MS))
        ledger.marker(7, commit=False)
        return read(self)

    monkeypatch.setattr(Watch, "_history", ends_meanwhile)
    assert verdicts(write_log.root, 1000 * HOUR_MS) == []


def test_the_hanging_view_lists_overdue_transactions(spark, reference):
    rows = spark.read.format("ottla").option("view", "hanging").load(str(reference("unclean"))).collect()
    assert sorted({row.transactionalId for row in rows}) == ["hanging-01", "tv2-01"]
    assert {row.verdict for row in rows} == {"overdue"}


def test_alerts_that_could_not_be_printed_are_repeated_at_the_next_run(spark, reference, tmp_path, monkeypatch, capsys):
    from ottla.spark_jobs import alert

    run = [str(reference("unclean")), "--once", "--format", "json", "--checkpoint", str(tmp_path / "told")]
    monkeypatch.setattr(alert, "show", lambda text: False)
    assert alert.main(run) == 2
    assert capsys.readouterr().err == "ottla alert: stdout is closed: the alerts cannot be printed\n"
    monkeypatch.undo()
    assert alert.main(run) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_job_prints_a_line_for_each(spark, reference, capsys):
    from ottla.spark_jobs import alert

    assert alert.main([str(reference("unclean")), "--once", "--format", "json"]) == 0
    rows = check_lines("ottla alert", capsys.readouterr().out)
    assert {row["transactionalId"] for row in rows} == {"hanging-01", "tv2-01"}
    assert {row["event"] for row in rows} == {"hanging"}
    assert {row["seen"][-6:] for row in rows} == {"+00:00"}


def test_lines_of_json_are_as_documented(reference, write_log, tmp_path, capsys):
    from ottla.spark_jobs import alert

    ledger = write_log()
    forget(write_log("__transaction_state"), 70, 80)
    ledger.data(1, producer_id=7, timestamp_ms=-1)
    ledger.data(1, producer_id=8, timestamp_ms=HOUR_MS)
    run = [str(write_log.root), "--once", "--format", "json", "--checkpoint", str(tmp_path / "told")]
    assert alert.main(run) == 0
    ledger.marker(8, commit=False)
    assert alert.main(run) == 0
    assert alert.main([str(reference("unclean")), "--once", "--format", "json"]) == 0
    lines = check_lines("ottla alert", capsys.readouterr().out)
    assert {line["event"] for line in lines} == {"hanging", "ended"}
    all_seen("ottla alert", lines)


def test_alert_once_runs_without_java(reference, tmp_path, capsys, monkeypatch):
    """With a checkpoint folder it prints each alert only once."""
    from ottla.spark_jobs import alert

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    run = [str(reference("unclean")), "--once", "--checkpoint", str(tmp_path / "told")]
    assert alert.main(run) == 0
    assert capsys.readouterr().out.count("HANGING") == 2
    assert alert.main(run) == 0
    assert capsys.readouterr().out == ""
    (tmp_path / "told" / "offsets").mkdir()
    assert alert.main(run) == 2
    assert "an alert without --once uses this folder" in capsys.readouterr().err


def test_a_failed_query_is_reported_in_one_line(spark, reference, tmp_path, capsys, monkeypatch):
    from ottla.spark_jobs import alert

    root = tmp_path / "log"
    shutil.copytree(reference("clean"), root)
    monkeypatch.setattr(alert, "_prepare", lambda _: shutil.rmtree(root))
    assert alert.main([str(root), "--once"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("ottla alert: ")
    assert (told.count("\n"), f"{root}: No such file or directory" in told) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--interval", "-1"), "--interval: -1"),
        (("--interval", "often"), "--interval: often: not a number of seconds"),
        (("--checkpoint", "file"), "--checkpoint file: Not a directory"),
    ],
)
def test_invalid_arguments_are_refused(reference, tmp_path, capsys, monkeypatch, arguments, said):
    from ottla.spark_jobs import alert

    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert alert.main([str(reference("clean")), "--once", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_directory_is_reported_in_one_line(tmp_path, capsys):
    from ottla.spark_jobs import alert

    assert alert.main([str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_ctrl_c_ends_the_alert_without_a_word(spark, reference, monkeypatch, capfd):
    from ottla.spark_jobs import alert

    told = []

    def show(text):
        told.append(text)
        os.kill(os.getpid(), signal.SIGINT)
        return True

    monkeypatch.setattr(alert, "show", show)
    before = signal.getsignal(signal.SIGINT)
    assert alert.main([str(reference("clean"))]) == 0
    assert "hanging-01" in told[0]
    assert signal.getsignal(signal.SIGINT) is before
    assert "Traceback" not in capfd.readouterr().err
