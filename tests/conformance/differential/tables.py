"""Scripts from the decision tables of Kafka's transaction coordinator: one for each row that the wire can reach.

Sources: `TransactionCoordinator`, `TransactionMetadata`, `KafkaApis` of Kafka 4.3.1; KIP-98, KIP-360, KIP-447, KIP-890.
"""

from differential.steps import (
    SHORT_MS,
    Script,
    abort,
    add,
    add_offsets,
    alias,
    await_timeout,
    commit,
    describe_transactions,
    end,
    fetch,
    foreign,
    init,
    init_many,
    list_offsets,
    list_transactions,
    produce,
    txn_offset_commit,
)

INIT_VERSIONS, ADD_VERSIONS, END_VERSIONS = range(5), range(4), range(4)
OPEN = [init("A"), add("A"), produce("A")]
LONGEST_TIMEOUT_MS = 900_000


def scripts():
    """Every script of this module, in a fixed order."""
    return [
        *_init_producer_id(),
        *_resume(),
        *_exhaustion(),
        *_add_partitions(),
        *_end_txn(),
        *_timeouts(),
        *_describe(),
    ]


def _init_producer_id():
    for version in INIT_VERSIONS:
        yield Script(f"init v{version}: a new id", [init("A", version=version), init("A", version=version)])
        yield Script(f"init v{version}: no id", [init("A", None, version=version), produce("A"), produce("A", n=3)])
        yield Script(f"init v{version}: empty id", [init("A", "", version=version)])
        yield Script(
            f"init v{version}: an open transaction is aborted first",
            [*OPEN, init("B", version=version), init("B", version=version), produce("A"), commit("A"), add("B")],
        )
    for version in (1, 4):
        for timeout_ms in (-1, 0, 1, LONGEST_TIMEOUT_MS, LONGEST_TIMEOUT_MS + 1, 2**31 - 1):
            steps = [init("A", version=version, timeout_ms=timeout_ms), init("B")]
            yield Script(f"init v{version}: timeout {timeout_ms}", steps)
    yield Script("init: no id and no timeout", [init("A", None, timeout_ms=0), init("A", None, timeout_ms=-1)])
    yield Script("init: no id and an expectation", [init("A", None), init("B", None, expected="A"), produce("B")])
    for outcome in (commit("A"), abort("A")):
        name = "commit" if outcome["commit"] else "abort"
        yield Script(f"init: after a {name}", [*OPEN, outcome, init("B"), produce("A"), add("B"), produce("B")])
    yield Script("init: changes the timeout", [init("A"), init("A", timeout_ms=5000), add("A")])
    yield Script("init: two ids have nothing in common", [init("A"), init("U", "u"), add("A"), add("U"), init("A")])


def _resume():
    """KIP-360: the client says who it is."""
    for version in (3, 4):
        name = f"resume v{version}"
        resume = {"version": version}
        for producer in ([5, -1], [-1, 5]):
            yield Script(f"{name}: half an expectation {producer}", [init("A", expected=producer, **resume)])
        yield Script(f"{name}: of an unknown id", [foreign("X", 7), init("A", expected="X", **resume)])
        yield Script(f"{name}: the current epoch", [init("A"), init("A", expected="A", **resume)])
        yield Script(
            f"{name}: the retry is recognised",
            [init("A"), init("B", expected="A", **resume), init("C", expected="A", **resume), add("C"), add("B")],
        )
        yield Script(
            f"{name}: the retry after another instance is fenced",
            [init("A"), init("B", expected="A", **resume), init("C"), init("D", expected="A", **resume)],
        )
        for epoch in (-1, 1, 5):
            steps = [init("A"), init("A"), init("A"), alias("X", "A", epoch=epoch), init("B", expected="X", **resume)]
            yield Script(f"{name}: epoch {epoch:+}", steps)
        for producer_id in (-1, 1):
            steps = [init("A"), alias("X", "A", producer_id=producer_id), init("B", expected="X", **resume)]
            yield Script(f"{name}: producer id {producer_id:+}", steps)
            yield Script(f"{name}: producer id {producer_id:+} while open", [*OPEN, *steps[1:], produce("A")])
        yield Script(
            f"{name}: an open transaction is aborted, the epoch not looked at",
            [*OPEN, alias("X", "A", epoch=3), init("B", expected="X", **resume), init("B", expected="A", **resume)],
        )
        yield Script(
            f"{name}: the client that resumed is fenced by its own abort",
            [*OPEN, init("A", expected="A", **resume), init("A", expected="A", **resume), init("A")],
        )
        yield Script(
            f"{name}: after an outcome",
            [*OPEN, commit("A"), init("B", expected="A", **resume), add("B"), produce("B"), abort("B")],
        )
    yield Script("resume v2: the expectation is not sent", [init("A"), init("B", version=2, expected=[5, 5])])


def _exhaustion():
    """An epoch of 32766 is the last; then the producer id changes."""
    yield Script(
        "init: the exhausted epoch needs another producer id",
        [
            init_many("A", 32_767),
            alias("old", "A", epoch=-1),
            init("B", expected="old"),
            add("A"),
            produce("A"),
            commit("A"),
            init("B", expected="A"),
            init("C", expected="A"),
            add("A"),
            add("B"),
            produce("B"),
            produce("A"),
            abort("B"),
        ],
    )


def _add_partitions():
    for version in ADD_VERSIONS:
        steps = [init("A"), add("A", version=version), add("A", version=version), add("A", [0, 1], version=version)]
        yield Script(f"add v{version}: joins once", [*steps, produce("A", 1), commit("A")])
        yield Script(
            f"add v{version}: strangers",
            [
                init("A"),
                init("A"),
                alias("unknown", "A", id="u"),
                alias("nobody", "A", id=""),
                alias("other", "A", producer_id=1),
                alias("late", "A", epoch=-1),
                alias("early", "A", epoch=1),
                alias("both", "A", producer_id=1, epoch=1),
                *(
                    step(who, version=version)
                    for who in ("unknown", "nobody", "other", "late", "early", "both")
                    for step in (add, add_offsets)
                ),
                add("A", version=version),
                *(add(who, version=version) for who in ("other", "late", "early")),
                commit("A"),
                *(add(who, version=version) for who in ("other", "late", "early")),
            ],
        )
        yield Script(
            f"add v{version}: one bad partition refuses all",
            [
                init("A"),
                add("A", [0, 7], version=version),
                add("A", [0, ["d-nowhere", 0]], version=version),
                add("A", [0, ["__consumer_offsets", 1]], version=version),
                add("A", [["__transaction_state", 0], ["d-nowhere", 2], 1], version=version),
                add("A", [-1], version=version),
                describe_transactions(),
                commit("A"),
            ],
        )
    yield Script("add: nothing", [init("A"), add("A", []), describe_transactions(), commit("A")])
    yield Script("add: a partition twice", [init("A"), add("A", [0, 0]), produce("A"), commit("A")])
    yield Script("add: begins the next transaction", [*OPEN, commit("A"), add("A", [1]), produce("A", 1), abort("A")])
    yield Script("add: offsets alone are a transaction", [init("A"), add_offsets("A"), add_offsets("A"), commit("A")])
    for group in ("", "g"):
        yield Script(f"add offsets: of group {group!r}", [init("A"), add_offsets("A", group), describe_transactions()])


def _end_txn():
    endings = {"commit": True, "abort": False}
    for version in END_VERSIONS:
        for name, outcome in endings.items():
            ended = end("A", outcome, version=version)
            other = end("A", not outcome, version=version)
            yield Script(f"end v{version}: {name} in Empty", [init("A"), ended, other])
            yield Script(f"end v{version}: {name}, again, otherwise", [*OPEN, ended, ended, other, ended])
            yield Script(f"end v{version}: {name} after a resume", [*OPEN, ended, init("A", expected="A"), ended])
        yield Script(
            f"end v{version}: strangers",
            [
                init("A"),
                *OPEN,
                alias("unknown", "A", id="u"),
                alias("nobody", "A", id=""),
                alias("other", "A", producer_id=1),
                alias("late", "A", epoch=-1),
                alias("early", "A", epoch=1),
                alias("both", "A", producer_id=1, epoch=1),
                *(
                    end(who, outcome, version=version)
                    for who in ("unknown", "nobody", "other", "late", "early", "both")
                    for outcome in (True, False)
                ),
                commit("A"),
                *(end(who, version=version) for who in ("other", "late", "early")),
            ],
        )
        yield Script(
            f"end v{version}: the fenced instance",
            [
                *OPEN,
                init("B"),
                init("B"),
                *(end("A", o, version=version) for o in (True, False)),
                add("B"),
                commit("B"),
            ],
        )
    for name, outcome in endings.items():
        yield Script(f"end: {name} of added, unwritten partitions", [init("A"), add("A", [0, 1]), end("A", outcome)])
        yield Script(
            f"end: {name} of two partitions",
            [init("A"), add("A", [0, 1]), produce("A", 0, 2), produce("A", 1, 3), fetch(0, 1), end("A", outcome)],
        )
        yield Script(
            f"end: {name} twenty times",
            [init("A"), *(step for _ in range(20) for step in (add("A"), produce("A"), end("A", outcome)))],
        )


def _timeouts():
    for name, last in {
        "produce": [produce("A"), produce("A", version=11), produce("A", 1)],
        "add": [add("A", version=1), add("A", version=3), add("A", [1]), add_offsets("A")],
        "commit": [commit("A", version=1), commit("A", version=3)],
        "abort": [abort("A", version=1), abort("A", version=3)],
        "offsets": [txn_offset_commit("A", [[0, 1]])],
        "resume": [init("B", expected="A", version=3), init("B", expected="A", version=4)],
        "init": [init("B"), add("B"), produce("B"), commit("B")],
        "nothing": [],
    }.items():
        yield Script(
            f"timed out: then {name}",
            [
                init("A", timeout_ms=SHORT_MS),
                add("A"),
                produce("A", 0, 2),
                list_offsets(0, 1),
                await_timeout(),
                list_offsets(0, 1),
                *last,
            ],
        )
    steps = [init("A", timeout_ms=SHORT_MS), add_offsets("A"), txn_offset_commit("A", [[0, 3]]), await_timeout()]
    yield Script("timed out: offsets are dropped", steps)
    yield Script("timed out: nothing was written", [init("A", timeout_ms=SHORT_MS), add("A"), await_timeout()])


def _describe():
    yield Script(
        "describe: each state",
        [
            init("A"),
            describe_transactions(["t", "nobody", ""]),
            add("A", [0, 1]),
            add_offsets("A"),
            describe_transactions(["t", "nobody"]),
            list_transactions("A"),
            list_transactions("A", ["Ongoing"]),
            list_transactions("A", ["CompleteCommit"]),
            list_transactions("A", ["CompleteCommit", "Nonsense", "Dead"]),
            commit("A"),
            describe_transactions(),
            list_transactions("A", ["CompleteCommit"]),
            init("A"),
            list_transactions("A", ["Empty"]),
        ],
    )
