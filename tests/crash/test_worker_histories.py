"""The checker on the workers' histories: a sound run has no anomaly, each planted one is found."""

import copy
import time

import pytest
from aio_worker import AiokafkaWorker
from clients import start_client
from targets import Ottla
from test_kill import all_go_on, finish, look_for_everything
from worker_histories import anomalies, entries, scan
from workload import TOPICS, start_workers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return (history, partitions) of a broker that is not killed."""
    directory = tmp_path_factory.mktemp("story")
    broker = Ottla(directory / "ottla").start()
    try:
        client = start_client("confluent-kafka", broker.bootstrap, directory)
        for topic, partitions in TOPICS.items():
            client.create_topics([topic], partitions)
        client.close()
        workers = start_workers(broker.bootstrap, "story", AiokafkaWorker)
        for _ in range(3):
            all_go_on(workers, "at work")
            time.sleep(0.3)
        finish(workers)
        finals = {"confluent-kafka": look_for_everything(broker, directory, "confluent-kafka")}
        assert broker.stop() == 0
    finally:
        broker.stop()
    return entries(workers, finals), scan(broker.data_dir)


def test_a_sound_run_has_no_anomaly(run):
    told, partitions = run
    assert anomalies(told, partitions) == []
    assert {entry["f"] for entry in told} == {"send", "end", "offsets", "poll", "final", "fetch-offsets"}


def sends_by_fate(told, committed):
    """Return the invocations of sends in transactions with a commit request, and in those without."""
    asked = {entry["txn"] for entry in told if entry["f"] == "end" and entry["type"] == "invoke"}
    sends = [entry for entry in told if entry["f"] == "send" and entry["type"] == "invoke" and entry["txn"]]
    return [entry for entry in sends if (entry["txn"] in asked) == committed]


def polls(told, proc):
    return [entry for entry in told if entry["f"] == "poll" and entry["type"] == "ok" and entry["proc"] == proc]


def claim_a_commit(told):
    # The checker expects nothing of a send that was abandoned before its acknowledgement.
    acknowledged = {entry["op"] for entry in told if entry["f"] == "send" and entry["type"] == "ok"}
    send = next(send for send in reversed(sends_by_fate(told, committed=False)) if send["op"] in acknowledged)
    operation = {"f": "end", "op": 10**6, "proc": send["proc"]}
    told.append({**operation, "type": "invoke", "txn": send["txn"], "commit": True})
    told.append({**operation, "type": "ok"})


def forget_a_commit(told):
    send = sends_by_fate(told, committed=True)[0]
    (end,) = (entry["op"] for entry in told if entry["f"] == "end" and entry.get("txn") == send["txn"])
    told[:] = [entry for entry in told if entry.get("op") != end]


def forget_a_send(told):
    send = sends_by_fate(told, committed=True)[0]["op"]
    told[:] = [entry for entry in told if entry.get("op") != send]


def commit_too_late(told):
    send = sends_by_fate(told, committed=True)[0]
    (end,) = (entry["op"] for entry in told if entry["f"] == "end" and entry.get("txn") == send["txn"])
    late = [entry for entry in told if entry.get("op") == end]
    told[:] = [entry for entry in told if entry.get("op") != end] + late


def skip_a_record(told):
    mop = next(mop for poll in polls(told, "reader") for mop in poll["mops"] if len(mop[4]) > 0)
    del mop[4][0]


def read_something_else(told):
    polls(told, "reader")[0]["mops"][0][4][0][1] = "nobody sent this"


def read_not_to_the_end(told):
    for poll in polls(told, "confluent-kafka"):
        for mop in poll["mops"]:
            del mop[4][-1:]


def tell_another_position(told):
    (fetched,) = (entry for entry in told if entry["f"] == "fetch-offsets" and entry["type"] == "ok")
    fetched["mops"][0][2] += 1


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (claim_a_commit, "lost-write"),
        (forget_a_commit, "G1a"),
        (forget_a_send, "phantom"),
        (commit_too_late, "early-read"),
        (skip_a_record, "poll-skip"),
        (read_something_else, "inconsistent-offsets"),
        (read_not_to_the_end, "unseen"),
        (tell_another_position, "offset-divergence"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_planted_anomaly_is_found(run, plant, kind):
    told, partitions = copy.deepcopy(run[0]), run[1]
    plant(told)
    assert kind in {anomaly.kind for anomaly in anomalies(told, partitions)}
