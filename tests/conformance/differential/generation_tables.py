"""Scripts of the second generation of transactions (KIP-890): each ends with another epoch, writes add partitions.

At `transaction.version` 0 and 1 a client would not send these requests; brokers answer them all the same.
"""

import random

from differential.steps import (
    SHORT_MS,
    Script,
    abort,
    add,
    add_many,
    add_offsets,
    alias,
    await_timeout,
    commit,
    describe_producers,
    describe_transactions,
    end,
    fetch,
    foreign,
    init,
    init_many,
    joining,
    list_offsets,
    marker,
    offset_fetch,
    produce,
    txn_offset_commit,
    write_markers,
)

V2_END, V2_PRODUCE, V2_OFFSETS = 5, 12, 5
WALKS, STEPS = 60, 24
NOWHERE = ["d-nowhere", 0]


def scripts():
    yield from _ends()
    yield from _late_ends()
    yield from _writes()
    yield from _offsets()
    yield from _brokers()
    yield from _markers()
    yield from _exhaustion()
    yield from (Script(f"v2 walk {seed}", _walk(random.Random(1000 + seed))) for seed in range(WALKS))


def write(who, partition=0, **options):
    return produce(who, partition, **({"version": V2_PRODUCE} | options))


def done(who, commits=True, **options):
    return end(who, commits, **({"version": V2_END} | options))


def _ends():
    """EndTxn 5 in each state, as it comes and once more."""
    before = {
        "nothing": [init("A")],
        "an open transaction": [init("A"), write("A")],
        "a commit": [init("A"), write("A"), done("A")],
        "an abort": [init("A"), write("A"), done("A", False)],
        "an empty abort": [init("A"), done("A", False)],
        "a commit of the first generation": [init("A"), add("A"), produce("A"), commit("A")],
        "an abort of the first generation": [init("A"), add("A"), produce("A"), abort("A")],
    }
    for state, steps in before.items():
        for commits in (True, False):
            for epoch in (-1, 0, 1):
                yield Script(
                    f"v2 end: {'commit' if commits else 'abort'} after {state}, epoch {epoch:+}",
                    [
                        *steps,
                        alias("X", "A", epoch=epoch),
                        done("X", commits),
                        alias("Y", "A", epoch=epoch),
                        done("Y", commits),
                        done("Y", not commits),
                        write("A"),
                        done("A"),
                    ],
                )
    for who, of in (("of nobody", "u"), ("empty", "")):
        yield Script(f"v2 end: an id that is {who}", [init("A"), alias("X", "A", id=of), done("X"), done("X", False)])
    yield Script("v2 end: another producer id", [init("A"), write("A"), alias("X", "A", producer_id=1), done("X")])
    yield Script(
        "v2 end: the first generation goes on after the second",
        [
            init("A"),
            write("A"),
            commit("A", version=4),
            add("A"),
            write("A", seq=1),
            done("A"),
            add("A"),
            produce("A"),
            abort("A", version=4),
            done("A", False),
            commit("A", version=4),
        ],
    )


def _late_ends():
    """EndTxn 5 of a client that has been overtaken."""
    yield Script("v2 end: timed out", [init("A", timeout_ms=SHORT_MS), write("A"), await_timeout(), *_late("A")])
    yield Script(
        "v2 end: timed out, then resumed",
        [
            init("A", timeout_ms=SHORT_MS),
            alias("B", "A"),
            write("A"),
            await_timeout(),
            init("B", expected="A"),
            write("B"),
            done("B"),
        ],
    )
    yield Script(
        "v2 end: fenced by a new instance",
        [init("A"), write("A"), init("B"), init("B"), *_late("A"), write("B"), done("B"), *_late("A")],
    )
    yield Script(
        "v2 end: resumed with the open transaction",
        [
            init("A"),
            alias("B", "A"),
            write("A"),
            init("B", expected="A"),
            init("B", expected="A"),
            write("B"),
            done("B"),
            *_late("A"),
        ],
    )


def _late(who):
    return [write(who), write(who, 1), produce(who, 1, version=11), done(who, False), done(who), write(who)]


def _writes():
    for version in (10, 11, 12, 13):
        asked = {"version": version}
        yield Script(
            f"v2 write: Produce {version}",
            [
                init("A"),
                init("A"),
                alias("early", "A", epoch=-1),
                alias("late", "A", epoch=1),
                alias("other", "A", producer_id=1),
                alias("unknown", "A", id="u"),
                *(produce(who, seq=0, **asked) for who in ("early", "late", "other", "unknown")),
                produce("A", 1, seq=2, **asked),
                produce("A", **asked),
                produce("A", again=1, **asked),
                produce("A", seq=7, **asked),
                produce("A", txn=False, **asked),
                produce("A", 7, seq=0, **asked),
                produce("A", NOWHERE, seq=0, **asked),
                produce("A", 1, seq=0, **asked),
                done("A"),
                *(produce(who, 1, seq=0, **asked) for who in ("early", "late", "other", "unknown")),
                produce("A", seq=1, **asked),
                produce("A", seq=0, **asked),
                produce("A", 0, name=False, **asked),
                done("A", False),
            ],
        )
        yield Script(
            f"v2 write: Produce {version} without a transaction",
            [
                init("I", None),
                produce("I", **asked),
                produce("I", seq=5, **asked),
                produce("I", 1, seq=5, **asked),
                foreign("X", 3),
                produce("X", txn=False, seq=9, **asked),
                produce("X", 1, txn=True, seq=0, **asked),
            ],
        )
    yield Script(
        "v2 write: sequences begin again with each transaction",
        [init("A"), *(step for commits in (True, False, True) for step in _round("A", commits)), write("A", seq=3)],
    )
    yield Script(
        "v2 write: to a partition that the first generation added",
        [init("A"), add("A"), write("A", seq=4), write("A", 1, seq=4), add("A", [1]), write("A", 1), done("A")],
    )


def _round(who, commits):
    return [
        write(who),
        write(who, n=3),
        write(who, again=1),
        write(who, 1),
        describe_transactions(),
        done(who, commits),
    ]


def _offsets():
    for version in (3, 4, 5):
        asked = {"version": version}
        yield Script(
            f"v2 offsets: TxnOffsetCommit {version}",
            [
                init("A"),
                init("A"),
                alias("early", "A", epoch=-1),
                alias("late", "A", epoch=1),
                alias("other", "A", producer_id=1),
                alias("unknown", "A", id="u"),
                alias("empty", "A", id=""),
                *(txn_offset_commit(who, [[0, 1]], **asked) for who in ("early", "late", "other", "unknown", "empty")),
                txn_offset_commit("A", [[9, 1]], **asked),
                txn_offset_commit("A", [[0, 1]], "", **asked),
                txn_offset_commit("A", [[0, 1]], generation=3, member="m", **asked),
                describe_transactions(),
                txn_offset_commit("A", [[0, 5], [1, 6], [9, 7]], **asked),
                done("A"),
                offset_fetch(),
                *(txn_offset_commit(who, [[0, 2]], **asked) for who in ("early", "late")),
                txn_offset_commit("A", [[0, 8]], **asked),
                done("A", False),
                txn_offset_commit("A", [[0, 9]], "h", **asked),
                add_offsets("A", "h", version=4),
                txn_offset_commit("A", [[0, 9]], "h", **asked),
                done("A"),
            ],
        )


def _brokers():
    for version in (4, 5):
        asked = {"version": version}
        yield Script(
            f"v2 brokers: AddPartitionsToTxn {version}",
            [
                init("A"),
                init("U", "u"),
                alias("early", "A", epoch=-1),
                alias("late", "A", epoch=1),
                alias("other", "A", producer_id=1),
                alias("unknown", "A", id="v"),
                alias("empty", "A", id=""),
                *(
                    add_many([joining(who, verify=verify)], **asked)
                    for verify in (False, True)
                    for who in ("early", "late", "other", "unknown", "empty")
                ),
                add_many([joining("A", [0, 7])], **asked),
                add_many([joining("A", [0, NOWHERE], verify=True)], **asked),
                add_many([joining("A", [0]), joining("U", [0, 1], verify=True)], **asked),
                describe_transactions(["t", "u"]),
                add_many([joining("A", [0, 1], verify=True), joining("U", [1])], **asked),
                add_many([joining("A", [["__consumer_offsets", 0]])], **asked),
                produce("A", version=11),
                produce("U", 1, version=11),
                done("A"),
                add_many([joining("A", [0], verify=True), joining("U", [1], verify=True)], **asked),
                commit("U", version=4),
            ],
        )

    yield Script(
        "v2 brokers: one transactional id twice",
        [init("A"), add_many([joining("A", [0, 1]), joining("A", [1], verify=True)]), describe_transactions()],
        False,
    )


def _markers():
    for generation in (0, 1, 2, 3):
        for epoch in (-1, 0, 1):
            yield Script(
                f"v2 marker: generation {generation}, epoch {epoch:+}",
                [
                    init("A"),
                    init("A"),
                    write("A"),
                    write("A", 1),
                    alias("X", "A", epoch=epoch),
                    *(write_markers([marker("X", generation=generation)], version=2) for _ in (1, 2)),
                    write("A"),
                    done("A"),
                    write("A"),
                    *(write_markers([marker("X", [0, 1], generation=generation)], version=2) for _ in (1, 2)),
                    done("A"),
                ],
            )
    yield Script(
        "v2 marker: repeated after the transaction ended",
        [
            init("A"),
            write("A"),
            done("A", settle=True),
            write_markers([marker("A", generation=2)], version=2),
            write("A"),
            write_markers([marker("A", generation=2)], version=2),
            fetch(0, 1),
            done("A"),
        ],
    )


def _exhaustion():
    yield Script(
        "v2 exhaustion: the last epochs",
        [
            init_many("A", 32765),
            write("A"),
            done("A"),
            alias("before", "A"),
            write("A"),
            done("A"),
            write("A"),
            done("A"),
            done("before"),
            done("before", False),
            describe_transactions(),
            write("A"),
            write("before"),
            done("A", False),
            init("B", expected="before"),
            init("B"),
        ],
    )
    yield Script(
        "v2 exhaustion: the request that changed the producer id, repeated",
        [
            init_many("A", 32767),
            write("A"),
            alias("before", "A"),
            done("A"),
            done("before"),
            done("before", False),
            init("C", expected="before"),
            write("A"),
            done("A"),
        ],
    )
    yield Script("v2 exhaustion: an empty abort", [init_many("A", 32767), alias("X", "A"), done("A", False), done("X")])


# ---- walks

IDS = {"A": "t", "B": "t", "U": "u", "V": "u"}
WEIGHTS = {"write": 45, "again": 6, "old": 8, "end": 24, "init": 6, "forge": 6, "offsets": 12, "marker": 3, "look": 8}


def _walk(rng):
    """Two ids with two instances each, most of the time in the second generation."""
    steps = [init("A"), init("U", "u"), alias("B", "A"), alias("V", "U")]
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    while len(steps) < STEPS:
        steps += _step_of(rng, rng.choices(kinds, weights)[0])
    return steps


def _step_of(rng, kind):
    who = rng.choice((*IDS, "A", "A", "U", "U"))
    partition = rng.randrange(2)
    match kind:
        case "write":
            return [produce(who, partition, rng.randint(1, 3), version=rng.choice((11, 12, 12, 12, 13)))]
        case "again":
            return [write(who, partition, again=rng.randint(1, 3))]
        case "old":
            return [add(who, [partition]), produce(who, partition, version=rng.choice((9, 10, 11)))]
        case "end":
            return [end(who, rng.random() < 0.6, version=rng.choice((4, 5, 5, 5, 5)))]
        case "init":
            return [init(who, IDS[who], version=rng.choice((4, 5)), expected=rng.choice((None, who)))] * 2
        case "forge":
            return [alias(rng.choice("BV"), rng.choice("AU"), epoch=rng.choice((-1, 0, 0, 1)))]
        case "offsets":
            return [txn_offset_commit(who, [[partition, rng.randrange(90)]], version=rng.choice((4, 5, 5)))]
        case "marker":
            row = marker(who, [partition], rng.random() < 0.5, generation=rng.choice((0, 2, 2)))
            return [write_markers([row], version=2)]
    looks = (
        fetch(partition, rng.randrange(2)),
        list_offsets(partition, 1),
        offset_fetch(stable=rng.random() < 0.5),
        describe_producers(),
        describe_transactions(["t", "u"]),
    )
    return [rng.choice(looks)]
