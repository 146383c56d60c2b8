"""Seeded random walks: two transactional ids with several instances each, an idempotent producer, one group."""

import random

from differential.steps import (
    Script,
    add,
    add_offsets,
    alias,
    describe_producers,
    describe_transactions,
    end,
    fetch,
    init,
    list_offsets,
    marker,
    offset_fetch,
    produce,
    txn_offset_commit,
    write_markers,
)

WALKS, STEPS = 110, 25
IDS = {"A": "t", "B": "t", "U": "u", "V": "u", "I": None}
PRODUCERS, TRANSACTIONAL = tuple(IDS), ("A", "B", "U", "V")
FORGED = ("Y", "Z")
WEIGHTS = {
    "produce": 40,
    "again": 7,
    "astray": 8,
    "add": 18,
    "end": 16,
    "init": 7,
    "resume": 5,
    "forge": 4,
    "offsets": 10,
    "marker": 3,
    "look": 8,
}


def scripts():
    """The walks, in a fixed order. Walks of one seed are one walk, whatever the others are."""
    return [Script(f"walk {seed}", _walk(random.Random(seed))) for seed in range(WALKS)]


def _walk(rng):
    steps = [init("A"), init("U", "u"), init("I", None), alias("B", "A"), alias("V", "U")]
    steps += [alias("Y", "A", epoch=1), alias("Z", "U", epoch=1)]
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    while len(steps) < STEPS:
        kind = rng.choices(kinds, weights)[0]
        steps += _STEP[kind](rng)
    return steps


def _who(rng, among):
    """Mostly the first instances: the walk gets somewhere before it is fenced."""
    return rng.choice(FORGED) if rng.random() < 0.06 else rng.choice((*among, "A", "U"))


def _produce(rng, **odd):
    version = rng.choice((3, 7, 9, 10, 11))
    return [produce(_who(rng, PRODUCERS), rng.randrange(2), rng.randint(1, 3), version=version, **odd)]


def _again(rng):
    return _produce(rng, again=rng.choice((1, 1, 2, 3, 5, 6)))


def _astray(rng):
    return _produce(rng, **rng.choice(({"shift": 1}, {"shift": -1}, {"seq": 0}, {"txn": False}, {"txn": True})))


def _add(rng):
    return [add(_who(rng, TRANSACTIONAL), rng.choice(([0], [1], [0, 1])), version=rng.randrange(4))]


def _end(rng):
    return [end(_who(rng, TRANSACTIONAL), rng.random() < 0.6, version=rng.randrange(4))]


def _init(rng):
    who = rng.choice(PRODUCERS)
    asked = init(who, IDS[who], version=rng.randrange(5))
    return [asked, asked] if rng.random() < 0.7 else [asked]


def _resume(rng):
    who = rng.choice(TRANSACTIONAL)
    of = who if rng.random() < 0.7 else rng.choice((*TRANSACTIONAL, *FORGED))
    return [init(who, IDS[who], version=rng.choice((3, 4)), expected=of)]


def _forge(rng):
    return [alias(rng.choice(FORGED), rng.choice(TRANSACTIONAL), epoch=rng.choice((-1, 0, 1, 1)))]


def _offsets(rng):
    who = _who(rng, TRANSACTIONAL)
    group, version = rng.choice("gh"), rng.randrange(4)
    asked = txn_offset_commit(who, [[rng.randrange(2), rng.randrange(100)]], group, version=version)
    return [asked] if rng.random() < 0.2 else [add_offsets(who, group, version=version), asked]


def _marker(rng):
    row = marker(_who(rng, TRANSACTIONAL), rng.choice(([0], [1], [0, 1])), rng.random() < 0.5)
    return [write_markers([row])]


def _look(rng):
    partition, isolation = rng.randrange(2), rng.randrange(2)
    looks = (
        fetch(partition, isolation, rng.randrange(6), version=rng.randint(4, 12)),
        list_offsets(partition, isolation, rng.choice((-1, -1, 3, 6))),
        offset_fetch(rng.choice("gh"), stable=rng.random() < 0.5),
        describe_producers(),
        describe_transactions(["t", "u"]),
    )
    return [rng.choice(looks)]


_STEP = {
    "produce": _produce,
    "again": _again,
    "astray": _astray,
    "add": _add,
    "end": _end,
    "init": _init,
    "resume": _resume,
    "forge": _forge,
    "offsets": _offsets,
    "marker": _marker,
    "look": _look,
}
