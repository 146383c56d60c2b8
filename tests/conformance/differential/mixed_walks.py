"""Seeded random walks through everything: both generations on the same ids, groups, forged epochs, every marker."""

import random

from differential.steps import (
    Script,
    add,
    add_many,
    add_offsets,
    alias,
    batch,
    describe_producers,
    describe_transactions,
    end,
    fetch,
    init,
    join,
    joining,
    list_matching,
    list_offsets,
    marker,
    offset_fetch,
    produce,
    produce_many,
    txn_offset_commit,
    write_markers,
)

WALKS, STEPS, FIRST_SEED = 150, 26, 3000
# In these a forged marker makes a partition refuse the transaction's own: see `marker_tables`.
REFUSED = {3069, 3100}
IDS = {"A": "t", "B": "t", "C": "t", "U": "u", "V": "u"}
FORGED = "XY"
GROUPS = [["__consumer_offsets", index] for index in range(4)]
WEIGHTS = {
    "write": 30,
    "old_write": 14,
    "again": 6,
    "astray": 6,
    "batches": 4,
    "add": 8,
    "brokers": 4,
    "end": 20,
    "init": 6,
    "resume": 4,
    "forge": 7,
    "offsets": 9,
    "marker": 7,
    "look": 8,
}


def scripts():
    return [walk(seed) for seed in range(FIRST_SEED, FIRST_SEED + WALKS) if seed not in REFUSED]


def walk(seed):
    rng = random.Random(seed)
    steps = [init("A"), init("U", "u", version=rng.choice((2, 5))), alias("B", "A"), alias("V", "U"), alias("C", "A")]
    steps += [alias("X", "A", epoch=1), alias("Y", "U", epoch=-1)]
    if rng.random() < 0.3:
        steps.append(join("m"))
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    while len(steps) < STEPS:
        steps += _STEP[rng.choices(kinds, weights)[0]](rng)
    return Script(f"mixed walk {seed}", steps)


def _who(rng):
    """Mostly the first instances: the walk gets somewhere before everybody is fenced."""
    return rng.choice(FORGED) if rng.random() < 0.08 else rng.choice((*IDS, "A", "A", "U"))


def _write(rng):
    return [produce(_who(rng), rng.randrange(2), rng.randint(1, 3), version=rng.choice((12, 12, 13)))]


def _old_write(rng):
    who, partition = _who(rng), rng.randrange(2)
    asked = [produce(who, partition, version=rng.choice((7, 10, 11)))]
    return asked if rng.random() < 0.3 else [add(who, [partition], version=rng.randrange(4)), *asked]


def _again(rng):
    return [produce(_who(rng), rng.randrange(2), again=rng.randint(1, 6), version=rng.choice((11, 12)))]


def _astray(rng):
    odd = rng.choice(({"shift": 1}, {"shift": -1}, {"seq": 0}, {"seq": 2**31 - 1}, {"txn": False}, {"name": False}))
    return [produce(_who(rng), rng.randrange(2), version=rng.choice((10, 11, 12)), **odd)]


def _batches(rng):
    first, second = _who(rng), _who(rng)
    rows = [batch(first, 0, rng.randrange(3)), batch(second if rng.random() < 0.3 else first, 1, rng.randrange(3))]
    return [produce_many(rows, id=IDS.get(first, "t"), version=rng.choice((10, 11, 12)))]


def _add(rng):
    return [add(_who(rng), rng.choice(([0], [1], [0, 1], [0, 7])), version=rng.randrange(4))]


def _brokers(rng):
    """Handles that nothing moves: Kafka answers strangely where a request names one transactional id twice."""
    rows = [joining(who, rng.choice(([0], [1], [0, 1])), verify=rng.random() < 0.5) for who in "AU"]
    return [add_many(rows, version=rng.choice((4, 5)))]


def _end(rng):
    return [end(_who(rng), rng.random() < 0.6, version=rng.choice((1, 3, 4, 5, 5, 5)))]


def _init(rng):
    who = rng.choice(list(IDS))
    asked = init(who, IDS[who], version=rng.randrange(6), timeout_ms=rng.choice((60_000, 50_000)))
    return [asked, asked]


def _resume(rng):
    who = rng.choice(list(IDS))
    of = who if rng.random() < 0.7 else rng.choice((*IDS, *FORGED))
    asked = init(who, IDS[who], version=rng.choice((3, 4, 5)), expected=of)
    return [asked] if rng.random() < 0.5 else [asked, asked]


def _forge(rng):
    return [
        alias(rng.choice((*FORGED, "B", "C", "V")), rng.choice("AAUB"), epoch=rng.choice((-2, -1, -1, 0, 0, 1, 1, 2)))
    ]


def _offsets(rng):
    who, group, version = _who(rng), rng.choice("gh"), rng.choice((2, 3, 4, 5, 5, 5))
    asked = txn_offset_commit(who, [[rng.randrange(2), rng.randrange(100)]], group, version=version)
    return [asked] if version == 5 or rng.random() < 0.3 else [add_offsets(who, group, version=min(version, 4)), asked]


def _marker(rng):
    version = rng.choice((1, 2, 2))
    generation = rng.choice((0, 1, 2, 2)) if version == 2 else 0
    places = rng.choice(([0], [1], [0, 1], GROUPS))
    rows = [marker(_who(rng), places, rng.random() < 0.5, generation=generation) for _ in range(rng.choice((1, 1, 2)))]
    if len(rows) == 2 and (rows[0]["who"] == rows[1]["who"] or places == GROUPS):
        rows.pop()
    return [write_markers(rows, version=version)]


def _look(rng):
    partition, isolation = rng.randrange(2), rng.randrange(2)
    looks = (
        fetch(partition, isolation, rng.randrange(6)),
        list_offsets(partition, isolation, rng.choice((-1, -1, 3))),
        offset_fetch(rng.choice("gh"), stable=rng.random() < 0.6),
        describe_producers(),
        describe_transactions(["t", "u"]),
        list_matching(pattern=rng.choice(("{}-[tu]", "{}-t", None)), version=2),
    )
    return [rng.choice(looks)]


_STEP = {
    "write": _write,
    "old_write": _old_write,
    "again": _again,
    "astray": _astray,
    "batches": _batches,
    "add": _add,
    "brokers": _brokers,
    "end": _end,
    "init": _init,
    "resume": _resume,
    "forge": _forge,
    "offsets": _offsets,
    "marker": _marker,
    "look": _look,
}
