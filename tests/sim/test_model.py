"""The small model, explored until there is nothing new, and with rules of the broker turned off."""

import json

import pytest

from lab.model import __main__ as command
from lab.model.broker import difference
from lab.model.explore import Explorer
from lab.model.plants import PLANTS
from lab.model.trace import NoSuchStep, replay
from lab.model.values import Violation
from lab.model.world import World

# Level, clients, bounds; docs/model.md has the figures of these and of larger ones.
RUNS = [
    (0, None, "copies=1"),
    (1, None, "copies=1"),
    (1, None, "crashes=1,timeouts=1"),
    (1, None, "copies=1,crashes=1,transactions=1/1"),
    (1, None, "copies=1,give_ups=1,transactions=1/1"),
    (2, None, "copies=1"),
    (2, None, "crashes=1"),
    (2, None, "give_ups=1,timeouts=1,transactions=1/1"),
    (2, None, "copies=1,crashes=1,transactions=1/1"),
    (2, "1,1", "copies=1"),
    (2, "1,2", "copies=1,give_ups=1,transactions=1/1"),
    (2, None, "first_epoch=32764,crashes=1,transactions=2/1"),
]


def run(level, bounds, clients=None):
    result, _seconds = command.explore(command.parse_bounds(bounds, level, clients), 3_000_000)
    return result


@pytest.mark.parametrize(("level", "clients", "bounds"), RUNS)
def test_no_state_within_the_bounds_breaks_a_rule(level, clients, bounds):
    result = run(level, bounds, clients)
    assert result.finding is None, result.finding
    assert result.complete
    assert result.rests > 0
    if level == 2 and clients is None:
        assert result.shared == result.anomalies == {}


def test_v1_is_hit_by_late_messages_and_by_each_cause_that_kafka_has():
    """KAFKA-17754: transactions V1 have no epoch of their own."""
    shared = run(1, "copies=1").shared
    assert set(shared) == {"late AddPartitionsToTxn", "late EndTxn", "late marker"}
    old = run(1, "give_ups=1,old_clients=1")
    assert "committed-unasked by late Produce" in old.anomalies


def test_levels_0_and_1_are_one_machine():
    zero, one = run(0, "copies=1,transactions=1/1"), run(1, "copies=1,transactions=1/1")
    assert zero._replace(bounds=one.bounds) == one


@pytest.mark.parametrize("level", [1, 2])
def test_forgetting_fenced_messages_hides_nothing(level):
    short, long = (run(level, f"copies=1,transactions=1/1{more}") for more in ("", ",keeps_fenced=1"))
    assert short.complete and long.complete
    assert short.states < long.states
    assert short.finding is long.finding is None
    assert (set(short.shared), set(short.anomalies)) == (set(long.shared), set(long.anomalies))


PLAYED = [
    (1, None, "transactions=1/1"),
    (1, None, "copies=1,crashes=1,transactions=1/1"),
    (2, None, "copies=1,give_ups=1,transactions=1/1"),
    (2, None, "crashes=1,timeouts=1,give_ups=1,transactions=1/1"),
    (2, "1,2", "copies=1,transactions=2/1"),
    (2, None, "first_epoch=32764,crashes=1,transactions=1/1"),
]


@pytest.mark.parametrize(("level", "clients", "bounds"), PLAYED)
def test_the_broker_goes_where_the_model_goes(level, clients, bounds):
    """Its own coordinator, fan-out, handlers and partitions, after every step of traces to states at rest."""
    explorer = Explorer(command.parse_bounds(bounds, level, clients))
    assert explorer.run().complete
    leaves = explorer.leaves(40)
    assert len(leaves) > 25
    assert [found for leaf in leaves if (found := difference(explorer.world, leaf))] == []


def test_a_broker_that_goes_elsewhere_is_noticed():
    explorer = Explorer(command.parse_bounds("crashes=1,transactions=1/1", 2))
    assert explorer.run().complete
    leaves = explorer.leaves(40)
    with PLANTS["prepare-forgotten"]():
        assert any(difference(explorer.world, leaf) for leaf in leaves)


# Plant -> level, bounds, and the rule that it breaks first.
SEEN = {
    "duplicates-appended": (2, "copies=1", "duplicate"),
    "epochs-unchecked": (1, "copies=1,transactions=1/1", "zombie-append"),
    "equal-markers-accepted": (2, "copies=1", "stray-marker"),
    "init-does-not-fence": (1, "transactions=1/1", "lost"),
    "marker-epochs-unchecked": (2, "copies=1", "stray-marker"),
    "markers-before-prepare": (2, "crashes=1", "torn"),
    "nothing-pending": (1, "transactions=1/1", "epoch-went-back"),
    "open-forgotten": (1, "copies=1,crashes=1", "stuck"),
    "prepare-forgotten": (2, "crashes=1", "stuck"),
    "retry-unrecognised": (2, "copies=1", "late-effect"),
    "unverified": (1, "give_ups=1,transactions=1/1", "hanging"),
}


def test_every_plant_is_tried():
    assert set(SEEN) == set(PLANTS)


@pytest.mark.parametrize("plant", SEEN)
def test_a_rule_turned_off_is_noticed(plant):
    level, text, rule = SEEN[plant]
    bounds = command.parse_bounds(text, level)
    with PLANTS[plant]():
        result = Explorer(bounds).run()
        assert result.finding is not None
        assert result.finding.rule == rule
        assert len(result.finding.trace) < 20
        try:
            replay(World(bounds), result.finding.trace)
        except NoSuchStep:
            pytest.fail("the trace cannot be played")
        except Violation as violation:
            assert violation.rule == rule
    assert Explorer(bounds, 2000).run().finding is None


TORN = """\
both producers send InitProducerId; A0 is at INIT ? as -1:-1; B0 is at INIT ? as -1:-1
A0's InitProducerId arrives; A waits for its answer
the record is durable; A0 is at PRODUCE ?? as 7:0; coordinator: Empty 7:0
A0's Produce 7:0 sequence 0 to partition 0 arrives; coordinator: Empty 7:0, pending Ongoing 7:0
the record is durable; coordinator: Ongoing 7:0
A0's Produce 7:0 sequence 0 to partition 0 arrives; A0 is at PRODUCE +? as 7:0
A0's Produce 7:0 sequence 0 to partition 1 arrives; coordinator: Ongoing 7:0, pending Ongoing 7:0
the record is durable; coordinator: Ongoing 7:0
A0's Produce 7:0 sequence 0 to partition 1 arrives; A0 is at END commit ? as 7:0
A0's EndTxn commit 7:0 arrives; A waits for its answer; coordinator: Ongoing 7:0, pending PrepareCommit 7:1
"""
EARLY = "commit marker 7:1 of coordinator epoch 0 for partition 0 arrives\n"


def test_a_trace_is_played_from_a_file(tmp_path, capsys):
    path = tmp_path / "trace"
    path.write_text(TORN)
    arguments = ["--level", "2", "--bounds", "crashes=1", "--replay", str(path)]
    assert command.main(arguments) == 0
    assert "partition 1: (Entry(producer_id=7" in capsys.readouterr().out
    path.write_text(TORN + EARLY)
    with pytest.raises(NoSuchStep):
        command.main(arguments)
    assert command.main([*arguments, "--plant", "markers-before-prepare"]) == 0


def test_the_figures_are_printed_and_the_trace_of_a_finding(capsys):
    small = ["--bounds", "crashes=1,transactions=1/1"]
    assert command.main(small) == 0
    told = capsys.readouterr().out
    assert told.count("complete, ") == 2
    assert command.main([*small, "--level", "2", "--plant", "prepare-forgotten", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["finding"]["rule"] == "stuck"
    assert "the coordinator crashes" in " ".join(found["finding"]["trace"])
    assert command.main([*small, "--level", "2", "--plant", "unverified"]) == 1
