"""Scripts of DescribeProducers, DescribeTransactions and ListTransactions in each state, with every filter.

Sources: `TransactionStateManager.listTransactionStates`, `ReplicaManager.activeProducerState` of Kafka 4.3.1; RE2/J.
"""

from pathlib import Path

from differential.generation_tables import done, write
from differential.steps import (
    SHORT_MS,
    Script,
    add,
    add_offsets,
    alias,
    await_timeout,
    commit,
    describe_producers,
    describe_transactions,
    end,
    foreign,
    init,
    list_matching,
    list_transactions,
    pause,
    produce,
    txn_offset_commit,
)

STATES = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
    "empty",
    "EMPTY",
    "Unknown",
]
NAMES = ("t", "tt", "T-1", "a.b", "a+b", "é", "ſ", "İ", "x\ny", "_", "k\u212a", "7", "𝄞", "-", "ab", "ba", "Ab\t")
# One a line: expressions that RE2/J takes, refuses, or reads otherwise than its neighbours do.
PATTERNS = (Path(__file__).parent / "patterns.txt").read_text().splitlines()
PATTERNS_AT_ONCE = 60


def scripts():
    yield from _patterns()
    yield from _filters()
    yield from _states()


def _patterns():
    """Whole expressions over the script's ids, and each behind what the names begin with."""
    whos = [f"A{number}" for number in range(len(NAMES))]
    begun = [init(who, name, settle=False) for who, name in zip(whos, NAMES, strict=True)]
    for start in range(0, len(PATTERNS), PATTERNS_AT_ONCE):
        asked = PATTERNS[start : start + PATTERNS_AT_ONCE]
        for name, before in (("alone", ""), ("after the prefix", "{}-")):
            steps = [list_matching(whos, pattern=before + pattern) for pattern in asked]
            yield Script(f"patterns {name}, from {start}", [*begun, *steps], False)
    scripts_of_unicode = ["\\p{Greek}", "\\p{Latin}", "\\P{Latin}", "{}-\\p{Latin}", "[\\p{Latin}]", "\\p{IsLatin}"]
    asked = [list_matching(whos, pattern=pattern) for pattern in scripts_of_unicode]
    yield Script("patterns: Unicode scripts", [*begun, *asked], False)
    deep = ["(" * 1500 + "t" + ")" * 1500, "((a{100}){100}){100}", "(?:a{1000}){2}"]
    asked = [list_matching(whos, pattern=pattern) for pattern in deep]
    yield Script("patterns: deep", [*begun, *asked], False)
    odd = ["", "t" * 5000, "(" * 50 + "t" + ")" * 50, "{}-" + "t?" * 400 + "t" * 2]
    odd += ["a{1000}a{1000}", "[" + "a-z" * 3000 + "]", "\0", "{}-x\ny"]
    yield Script("patterns: long", [*begun, *(list_matching(whos, pattern=p) for p in odd)], False)
    yield Script(
        "patterns: with other filters",
        [
            *begun,
            add("A0"),
            list_matching(whos, pattern="{}-t+", states=["Ongoing"]),
            list_matching(whos, pattern="{}-t+", states=["Empty"]),
            list_matching(["A0"], pattern="{}-.*"),
            list_matching(pattern="{}-[a-z]+"),
            list_matching(whos, pattern="{}-.*", duration_ms=0, states=["Nonsense"]),
            list_matching(whos, pattern="(", states=["Nonsense"]),
            list_matching(whos, pattern="(", version=1),
            list_matching(whos, pattern=None),
        ],
        False,
    )


def _filters():
    begun = [
        init("A"),
        init("U", "u"),
        init("V", "v"),
        add("A"),
        produce("A"),
        write("U", 1),
        done("U"),
        foreign("X", 1),
    ]
    for version in (0, 1, 2):
        asked = {"version": version}
        yield Script(
            f"list {version}: filters",
            [
                *begun,
                list_matching("AUV", **asked),
                list_matching("A", **asked),
                list_matching("X", **asked),
                list_matching(["nobody"], **asked),
                list_matching(**asked),
                list_matching([], **asked),
                *(list_matching("AUV", states=[state], **asked) for state in STATES),
                list_matching("AUV", states=STATES, **asked),
                list_matching("AUV", states=["Ongoing", "Ongoing", "Foo", "Foo", ""], **asked),
                *(
                    list_matching("AUV", duration_ms=duration_ms, **asked)
                    for duration_ms in (-2, -1, 0, 1, 60_000, 2**40, 2**63 - 1, -(2**63))
                ),
                pause(1200),
                list_matching("AUV", duration_ms=1000, **asked),
                list_matching("AUV", duration_ms=1000, states=["Ongoing"], **asked),
            ],
        )


def _states():
    """Compare the three listings of one id, step by step, in both generations."""
    look = [describe_transactions(["t", "nobody"]), list_transactions("A"), describe_producers()]
    endings = {"commit": True, "abort": False}
    for name, commits in endings.items():
        for version in (4, 5):
            yield Script(
                f"listings: {name} {version}",
                [
                    init("A"),
                    *look,
                    add("A", [0, 1]),
                    *look,
                    produce("A", n=2),
                    *look,
                    add_offsets("A"),
                    txn_offset_commit("A", [[0, 1]]),
                    *look,
                    end("A", commits, version=version),
                    *look,
                    write("A"),
                    *look,
                    init("B"),
                    *look,
                    init("B"),
                    *look,
                    alias("C", "B"),
                    init("C", expected="C"),
                    *look,
                ],
            )
    yield Script("listings: timed out", [init("A", timeout_ms=SHORT_MS), write("A"), *look, await_timeout(), *look])
    yield Script(
        "listings: describe several",
        [
            init("A"),
            init("U", "u"),
            commit("U"),
            describe_transactions(["t", "u", "v", ""]),
            describe_transactions([]),
            describe_producers([0, 1, 7]),
            describe_producers([["d-nowhere", 0]]),
            describe_producers([["__transaction_state", 99]]),
            describe_producers([]),
        ],
    )
