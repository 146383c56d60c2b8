"""Bugs on purpose: each is noticed in a few seeds of its profile, and the rarest ones in a schedule of their own."""

import json
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from lab.simulation.faults import PROFILES
from lab.simulation.network import NetworkConditions
from lab.simulation.outcome import judge, run_seed
from lab.simulation.plants import PLANTS
from lab.simulation.producers import Abortable, Producer, ProducerBehaviour
from lab.simulation.rates import MEASURED, main, real_problems, row
from lab.simulation.world import World
from ottla.protocol.values import TransactionMarker
from ottla.testkit.in_memory import wire

RATES = json.loads((Path(__file__).parent / "rates.json").read_text(encoding="utf-8"))
"""Written by `python -m lab.simulation.rates tests/sim/rates.json`."""


def test_every_plant_has_a_measured_rate_listed_in_the_docs():
    assert RATES.keys() == PLANTS.keys()
    assert {plant: (rate["profile"], rate["level"]) for plant, rate in RATES.items()} == MEASURED
    told = (Path(__file__).parents[2] / "docs/simulation.md").read_text(encoding="utf-8")
    for plant, rate in RATES.items():
        title, rest = row(plant, rate).split(" | ", 1)
        assert any(line.startswith(f"{title}: ") and line.endswith(rest) for line in told.splitlines()), plant


def test_a_plant_is_measured_again_and_the_others_stay(tmp_path, capsys):
    path = tmp_path / "rates.json"
    path.write_text(json.dumps({"unverified": {"seeds": 1}}))
    assert main([str(path), "aborted-list-empty"]) == 0
    assert capsys.readouterr().out.startswith("| `aborted-list-empty` | mixed | ")
    found = json.loads(path.read_text())
    assert found["unverified"] == {"seeds": 1}
    assert found["aborted-list-empty"]["caught"] > 0


def test_an_exception_is_no_sign_that_a_bug_was_noticed():
    problems = ["simulation broke: KeyError", "bug: TypeError", "error log: x", "hanging-txn: data-0"]
    assert real_problems("unverified", problems) == ["hanging-txn: data-0"]


@pytest.mark.parametrize("plant", [name for name in PLANTS if RATES.get(name, {}).get("caught")])
def test_a_planted_bug_is_noticed(plant):
    """By the first seeds that noticed it; when the simulation has changed, by others of the same profile."""
    rate = RATES[plant]
    profile, level = PROFILES[rate["profile"]], rate["level"]
    others = range(min(150, 5 * rate["seeds"] // rate["caught"]))
    with PLANTS[plant]():
        seeds = chain(rate["first"], others)
        assert any(real_problems(plant, run_seed(seed, profile, level=level).problems) for seed in seeds)


# --- schedules of their own

QUIET = PROFILES["calm"]._replace(network=NetworkConditions(stall=0, split=0, reset=0, late=1, late_ms=0), stops=(0, 0))
ZERO, ONE = ("data", 0), ("data", 1)


class ScriptedWorld(World):
    """A world with one producer of `t0`, which runs a script."""

    def __init__(self, script, level, profile=QUIET):
        super().__init__(1, profile._replace(call_ms=(0.0,), small_segments=0.0, v2_clients=1.0), level=level)
        self._script = script

    def _start_clients(self):
        actor = Producer(self, "p", Random(1), "t0", [ZERO, ONE], ProducerBehaviour(depth=2))
        self.processes.append(actor)
        actor.start(lambda: self._script(self, actor), 0)


def transaction(actor, *writes, commit=None):
    """Write [(place, value)] in a transaction, and end it if `commit` says how."""
    begin(actor)
    yield from actor.add([place for place, _value in writes])
    yield from actor.produce([(place, [value]) for place, value in writes])
    if commit is not None:
        yield from actor.end(commit)


def begin(actor):
    actor.serial += 1
    actor.txn, actor.added, actor.begun = f"p/{actor.serial}", {}, False


def give_up(actor, place, value, late_ms):
    """Send a batch on a connection that the client no longer reads. The batch arrives `late_ms` later."""
    write = actor._begin_write(place, [value])
    yield from actor.post(write.request, write.attempt)
    actor._links[0].stall(late_ms)
    actor.turn_away()
    actor._give_up([write], errors={})
    actor.begun = True


def late_batch_after_an_empty_abort(world, actor):
    """KIP-890: the abort moves the epoch although the coordinator knows of no transaction."""
    yield from actor.initialise()
    begin(actor)
    yield from give_up(actor, ZERO, "given up", 60)
    yield from actor.end(False)
    yield from transaction(actor, (ONE, "kept"))
    yield from actor.sleep(100)
    yield from actor.end(True)


def abort_beside_a_batch(world, actor):
    """The abort overtakes a batch between its verification and its append, if the two can be parted."""
    yield from actor.initialise()
    begin(actor)
    yield from actor.add([ZERO])
    yield from give_up(actor, ZERO, "given up", 1)
    yield from actor.sleep(4)
    yield from actor.end(False)


def batches_while_the_markers_wait(world, actor):
    """The first batch of a transaction waits for the one before and is refused, the second one waits long enough."""
    yield from actor.initialise()
    yield from transaction(actor, (ZERO, "first"))
    world.faults.bad_markers = 3
    yield from actor.end(True)
    try:
        yield from transaction(actor, (ONE, "second"), (ONE, "third"), commit=True)
    except Abortable:
        yield from actor.recover()


def end_of_the_transaction_before(world, actor):
    """An EndTxn that was answered arrives again, while the next transaction is open in the epoch that it brought."""
    yield from actor.initialise()
    yield from transaction(actor, (ZERO, "first"))
    again = wire.end_txn(actor.generation, actor.transactional_id, actor.producer, True)
    yield from actor.end(True)
    yield from transaction(actor, (ZERO, "second"))
    yield from actor.call(again)
    yield from actor.end(False)


def marker_of_the_transaction_before(world, actor):
    """A marker that was written arrives again, while the next transaction is open in the epoch that it brought."""
    yield from actor.initialise()
    yield from transaction(actor, (ZERO, "first"), commit=True)
    producer_id, epoch = actor.producer
    yield from transaction(actor, (ZERO, "second"))
    again = TransactionMarker(producer_id, epoch, 0, True, 2)
    world.run_in_turn(lambda: world.peers[0].receive(*ZERO, again))
    yield from transaction(actor, (ZERO, "third"))
    yield from actor.end(False)


def forgotten_batch(world, actor):
    """A client loses a batch and sends the one behind it."""
    yield from actor.initialise()
    yield from transaction(actor, (ZERO, "first"))
    actor.sequences[ZERO] += 1
    try:
        yield from actor.produce([(ZERO, ["third"])])
    except Abortable:
        yield from actor.recover()
    else:
        yield from actor.end(True)


def duplicate_during_the_flush(world, actor):
    """A batch is sent again while the flush of the first one is under way."""
    yield from actor.initialise()
    begin(actor)
    yield from actor.add([ZERO])
    write = actor._begin_write(ZERO, ["twice"])
    actor.begun = True
    yield from actor.post(write.request, write.attempt)
    yield from actor.sleep(20 if actor.generation.adds_by_itself else 120)  # Produce 12 waits for its joining first
    actor.hang_up()
    answer = yield from actor.call(write.request, write.attempt)
    actor._on_result(write, answer.responses[0].partition_responses[0])
    yield from actor.end(True)


def sequences_taken_back(world, actor):
    """A reply is lost, the application aborts, and the next transaction of the epoch begins with the same sequence."""
    actor.behaviour = ProducerBehaviour(takes_back=1.0)
    yield from actor.initialise()
    begin(actor)
    yield from actor.add([ZERO])
    write = actor._begin_write(ZERO, ["unheard"])
    actor.begun = write.lost = True
    yield from actor.post(write.request, write.attempt)
    yield from actor.sleep(3)
    actor.hang_up()
    with pytest.raises(Abortable) as abortable:
        actor._maybe_take_back([write])
    yield from actor.recover(abortable.value.keeps_epoch)
    assert actor.sequences[ZERO] == 0
    try:
        yield from transaction(actor, (ZERO, "heard"), commit=True)
    except Abortable as again:
        yield from actor.recover(again.keeps_epoch)
        yield from transaction(actor, (ZERO, "heard again"), commit=True)


FLUSHED = QUIET._replace(flush_ms=(100.0, 100.0))
DIRECTED = [
    ("empty-abort-keeps-epoch", late_batch_after_an_empty_abort, 2, QUIET),
    ("guard-missing", abort_beside_a_batch, 1, QUIET),
    ("overtaking-accepted", batches_while_the_markers_wait, 2, QUIET),
    ("retry-unrecognised", end_of_the_transaction_before, 2, QUIET),
    ("equal-marker-accepted", marker_of_the_transaction_before, 2, QUIET),
    ("gaps-accepted", forgotten_batch, 1, QUIET),
    ("gaps-accepted", forgotten_batch, 2, QUIET),
    ("reuse-acknowledged", sequences_taken_back, 1, QUIET),
    ("duplicate-early", duplicate_during_the_flush, 1, FLUSHED),
    ("duplicate-early", duplicate_during_the_flush, 2, FLUSHED),
]


@pytest.mark.parametrize(("plant", "script", "level", "profile"), DIRECTED)
def test_a_schedule_made_for_it_shows_the_bug_and_is_clean_without(plant, script, level, profile):
    def found():
        world = ScriptedWorld(script, level, profile)
        world.run()
        assert world.clients == ["p"]
        return judge(world).problems

    assert found() == []
    with PLANTS[plant]():
        assert real_problems(plant, found()) != []
