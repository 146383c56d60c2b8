"""Delivered and committed records are in the log, also after a failed batch (docs/in-the-log.md).

The test is short: `run.py` next to this file runs more.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from clients import lacks
from in_the_log import lost, retries
from in_the_log.wire import Loss
from targets import TARGETS

TRIALS, TRANSACTIONS = 3, 40
LOSSES = [Loss.SWALLOW, Loss.CUT, Loss.KILL, Loss.RESTART]
ALWAYS = [("ottla", Loss.CUT, counts) for counts in lost.COUNTS]
MORE = [("ottla", loss, counts) for loss in LOSSES if loss is not Loss.CUT for counts in lost.COUNTS]
MORE.append(("ottla-v1", Loss.CUT, "same"))
# In V2 each transaction has an epoch of its own, so that there is less to refuse.
RETRIES = [*(("ottla-v1", name) for name in retries.CLIENTS), ("ottla", "java")]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """A broker by its name, started when first asked for."""
    started = {}

    def broker(target):
        if target not in started:
            started[target] = TARGETS[target](tmp_path_factory.mktemp("in-the-log") / target).start()
        return started[target]

    yield broker
    for each in started.values():
        each.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "loss", "counts"),
    [*ALWAYS, *(pytest.param(*each, marks=pytest.mark.conformance) for each in MORE)],
    ids=lambda part: part.value if isinstance(part, Loss) else part,
)
def test_reused_sequences_are_refused_and_no_committed_record_is_lost(brokers, target, loss, counts):
    row = lost.play(brokers(target), loss, counts, TRIALS)
    # Not in every trial: a machine that stands still lets the client send the batch again before it aborts.
    assert row.reused > 0, "the client took no sequences back"
    assert (row.refused, row.lost_records, row.fatal, row.stalled, row.wrong) == (row.reused, 0, 0, 0, 0)


@pytest.mark.conformance
@pytest.mark.parametrize("target", ["apache", "apache-v1"])
@pytest.mark.parametrize("loss", [Loss.SWALLOW, Loss.CUT], ids=lambda loss: loss.value)
def test_kafka_acknowledges_and_drops_it(brokers, target, loss):
    row = lost.play(brokers(target), loss, "same", TRIALS)
    assert (row.reused, row.lost_transactions, row.fatal) == (TRIALS, TRIALS, 0)


@pytest.mark.conformance
@pytest.mark.parametrize(("target", "name"), RETRIES)
def test_an_honest_retry_is_not_refused(brokers, target, name, tmp_path):
    if reason := lacks(name):
        pytest.skip(f"{name}: {reason}")
    row = retries.play(brokers(target), name, TRANSACTIONS, tmp_path)
    assert row.of_written > 0, "no batch was sent again"
    assert (row.refused_in_error, row.lost_records, row.wrong) == (0, 0, 0)
    assert row.refused_reuses == row.reused
    assert row.reused == 0 or name == "confluent-kafka"
