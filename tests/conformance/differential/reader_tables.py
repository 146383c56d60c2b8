"""Scripts of what readers see: fetches in both isolations, offsets by time, offsets committed in transactions.

Sources: `UnifiedLog`, `ReplicaManager`, `OffsetMetadataManager` of Kafka 4.3.1; KIP-98, KIP-447.
"""

from differential.steps import (
    Script,
    abort,
    add,
    add_offsets,
    alias,
    commit,
    fetch,
    init,
    list_offsets,
    offset_fetch,
    pause,
    produce,
    txn_offset_commit,
)

OFFSET_VERSIONS, FETCH_VERSIONS, LIST_VERSIONS = range(4), range(4, 13), range(1, 9)
LONG_METADATA = "x" * 4097
OPEN = [init("A"), add("A"), produce("A")]


INTERLEAVED = [
    init("A"),
    init("U", "u"),
    init("I", None),
    add("A"),
    produce("A", n=2),
    produce("I"),
    add("U"),
    produce("U", n=3),
    abort("A"),
    pause(5),
    produce("I", n=2),
    add("A"),
    produce("A"),
    commit("U"),
    add("U"),
    produce("U"),
]


def scripts():
    """Every script of this module, in a fixed order."""
    return [
        *_reads(),
        *_partial_reads(),
        *_time_reads(),
        *_offsets(),
        *_offset_fetches(),
        *_offset_outcomes(),
        *_members(),
    ]


def _reads():
    for version in FETCH_VERSIONS:
        steps = [fetch(0, isolation, offset, version=version) for isolation in (0, 1) for offset in range(14)]
        yield Script(f"fetch v{version}: every offset", [*INTERLEAVED, *steps])
    yield Script(
        "fetch: an aborted list from every offset",
        [
            *(
                step
                for _ in range(4)
                for step in (
                    init("A"),
                    add("A"),
                    produce("A", n=2),
                    abort("A"),
                    init("A"),
                    add("A"),
                    produce("A"),
                    commit("A"),
                )
            ),
            *(fetch(0, 1, offset) for offset in range(21)),
        ],
    )
    yield Script(
        "fetch: overlapping aborts",
        [
            init("A"),
            init("U", "u"),
            init("V", "v"),
            add("A"),
            add("U"),
            add("V"),
            *(produce(who) for who in ("U", "A", "V", "A", "U", "V")),
            abort("A"),
            produce("U"),
            abort("V"),
            abort("U"),
            *(fetch(0, 1, offset) for offset in range(11)),
        ],
    )


def _partial_reads():
    """Compare the aborted transactions of small fetches: only those of their batches, found by the index."""
    big = 5000
    begun = [init("A"), init("U", "u"), init("V", "v"), init("I", None), add("A"), add("U"), add("V")]
    written = [*(produce(who, size=big) for who in ("A", "U")), abort("U")]
    for name, last in {"commit": commit("A"), "abort": abort("A")}.items():
        yield Script(
            f"fetch: a batch at a time, the longest transaction ends in {name}",
            [
                *begun,
                *written,
                *(produce(who, size=big) for who in ("I", "V", "I")),
                *(abort("V"), add("U"), produce("U", size=big), commit("U"), produce("A", size=big), last),
                *(produce("I", size=big), add("V"), produce("V", size=big), abort("V")),
                *(fetch(0, 1, offset, max_bytes=1) for offset in range(1, 14)),
            ],
        )
    ended = [produce("I", size=big), abort("A")]
    yield Script("fetch: the first batch", [*begun, *written, *ended, fetch(0, 1, max_bytes=1)], False)
    cuts = [fetch(0, 1, offset, max_bytes=big + 200) for offset in (0, 1, 2)]
    yield Script("fetch: a cut through a batch", [*begun, *written, *ended, *cuts], False)


def _time_reads():
    for partition in (7, ["d-nowhere", 0]):
        yield Script(f"fetch: unknown {partition}", [fetch(partition), list_offsets(partition)])
    for version in LIST_VERSIONS:
        steps = [
            list_offsets(0, isolation, timestamp, version=version)
            for isolation in (0, 1)
            for timestamp in (
                -1,
                -2,
                *([-3] if version >= 7 else []),
                *([-4] if version >= 8 else []),
                0,
                1,
                4,
                5,
                6,
                99,
            )
        ]
        yield Script(f"list offsets v{version}", [*INTERLEAVED, *steps])
        yield Script(f"list offsets v{version}: of nothing", steps)
        steps = [list_offsets(0, 0, timestamp, version=version) for timestamp in (-3, -4, -5, -6, -7)]
        yield Script(f"list offsets v{version}: special timestamps", [*INTERLEAVED, *steps])


def _offsets():
    begun = [init("A"), add_offsets("A")]
    for version in OFFSET_VERSIONS:
        asked = {"version": version}
        for outcome in (commit("A"), abort("A")):
            name = "commit" if outcome["commit"] else "abort"
            yield Script(
                f"offsets v{version}: {name}",
                [
                    *begun,
                    txn_offset_commit("A", [[0, 5], [1, 7]], leader_epoch=0, metadata="m", **asked),
                    *(offset_fetch(stable=stable) for stable in (False, True)),
                    outcome,
                ],
            )
        yield Script(
            f"offsets v{version}: strangers",
            [
                init("A"),
                init("A"),
                txn_offset_commit("A", [[0, 1]], **asked),
                alias("unknown", "A", id="u"),
                alias("nobody", "A", id=""),
                alias("other", "A", producer_id=1),
                alias("late", "A", epoch=-1),
                alias("early", "A", epoch=1),
                *(txn_offset_commit(who, [[0, 2]], **asked) for who in ("unknown", "nobody", "other", "late", "early")),
                add_offsets("A"),
                *(txn_offset_commit(who, [[0, 3]], **asked) for who in ("unknown", "nobody", "other", "late", "early")),
                txn_offset_commit("A", [[0, 4]], **asked),
                *(txn_offset_commit(who, [[0, 5]], **asked) for who in ("unknown", "nobody", "other", "late", "early")),
                commit("A"),
                txn_offset_commit("A", [[0, 6]], **asked),
            ],
        )
        yield Script(
            f"offsets v{version}: what cannot be committed",
            [
                *begun,
                txn_offset_commit("A", [[0, 1]], "", **asked),
                txn_offset_commit("A", [[0, 1], [7, 1], [["d-nowhere", 0], 1]], **asked),
                txn_offset_commit("A", [[0, 2]], metadata=LONG_METADATA, **asked),
                txn_offset_commit("A", [[0, -1], [1, -5]], **asked),
                txn_offset_commit("A", [], **asked),
                commit("A"),
            ],
        )
        yield Script(
            f"offsets v{version}: another group was not added",
            [
                *begun,
                *(txn_offset_commit("A", [[0, 1]], group, **asked) for group in ("g", "h", "i", "j", "k")),
                commit("A"),
            ],
        )


def _offset_fetches():
    begun = [init("A"), add_offsets("A")]
    for version in range(1, 9):
        yield Script(
            f"offset fetch v{version}",
            [
                *begun,
                txn_offset_commit("A", [[0, 5]], metadata="m"),
                offset_fetch(version=version),
                *([offset_fetch(stable=True, version=version)] if version >= 7 else []),
                commit("A"),
                offset_fetch(version=version),
                offset_fetch("none", version=version),
                offset_fetch("g", [0, 7], version=version),
            ],
        )


def _offset_outcomes():
    begun = [init("A"), add_offsets("A")]
    yield Script(
        "offsets: the later commit wins",
        [
            *begun,
            init("U", "u"),
            add_offsets("U"),
            txn_offset_commit("A", [[0, 5]]),
            txn_offset_commit("U", [[0, 3]]),
            commit("U"),
            offset_fetch(),
            commit("A"),
            offset_fetch(),
        ],
    )
    yield Script(
        "offsets: an abort leaves what was there",
        [
            *begun,
            txn_offset_commit("A", [[0, 5]]),
            commit("A"),
            add_offsets("A"),
            txn_offset_commit("A", [[0, 9], [1, 1]]),
            offset_fetch(),
            abort("A"),
            offset_fetch(stable=True),
        ],
    )
    yield Script(
        "offsets: twice in one transaction",
        [
            *begun,
            txn_offset_commit("A", [[0, 5]]),
            txn_offset_commit("A", [[0, 6]]),
            txn_offset_commit("A", [[1, 2]]),
            commit("A"),
        ],
    )
    yield Script(
        "offsets: pending of a fenced instance are dropped",
        [
            *begun,
            txn_offset_commit("A", [[0, 5]]),
            init("B"),
            offset_fetch(stable=True),
            init("B"),
            txn_offset_commit("A", [[0, 6]]),
            add_offsets("B"),
            txn_offset_commit("A", [[0, 7]]),
            txn_offset_commit("B", [[0, 8]]),
            commit("B"),
        ],
    )
    yield Script(
        "offsets: with data",
        [
            *OPEN,
            add_offsets("A"),
            txn_offset_commit("A", [[0, 1]]),
            commit("A"),
            produce("A"),
            add_offsets("A"),
            produce("A"),
            txn_offset_commit("A", [[0, 2]]),
            add("A"),
            produce("A"),
            abort("A"),
        ],
    )


def _members():
    """KIP-447: a member of a group that is not one any more must not commit."""
    begun = [init("A"), add_offsets("A")]
    for generation, member, instance in [
        (0, "", None),
        (1, "", None),
        (-1, "m", None),
        (1, "m", None),
        (-1, "", "i"),
        (3, "m", "i"),
        (-2, "", None),
    ]:
        for known in (False, True):
            name = (
                f"member: generation {generation}, {member!r}, {instance!r}, "
                + ("known" if known else "new")
                + " group"
            )
            asked = {"generation": generation, "member": member, "instance": instance}
            before = [txn_offset_commit("A", [[0, 1]]), commit("A"), add_offsets("A")] if known else []
            steps = [*begun, *before, txn_offset_commit("A", [[0, 2]], **asked), offset_fetch(), commit("A")]
            yield Script(name, steps)
