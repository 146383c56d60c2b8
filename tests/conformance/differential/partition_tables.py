"""Scripts from the decision tables of a partition's leader: sequences, epochs, verification, markers.

Sources: `ProducerAppendInfo`, `ProducerStateManager`, `UnifiedLog`, `ReplicaManager` of Kafka 4.3.1; KIP-98, KIP-890.
"""

from differential.steps import (
    Script,
    abort,
    add,
    add_offsets,
    alias,
    commit,
    fetch,
    foreign,
    init,
    list_offsets,
    marker,
    offset_fetch,
    produce,
    txn_offset_commit,
    write_markers,
)

MAX_SEQUENCE = 2**31 - 1
PRODUCE_VERSIONS = range(3, 12)
OPEN = [init("A"), add("A"), produce("A")]


def scripts():
    """Every script of this module, in a fixed order."""
    return [
        *_sequences(),
        *_sequence_answers(),
        *_epochs(),
        *_fence(),
        *_verification(),
        *_verified_partitions(),
        *_markers(),
        *_marker_requests(),
        *_stable_offset(),
    ]


def _sequences():
    for name, id in {"idempotent": None, "transactional": "t"}.items():
        start = [init("A", id)] + ([add("A")] if id else [])
        yield Script(
            f"sequence, {name}: duplicates of the last five",
            [
                *start,
                *(produce("A", n=n) for n in (1, 2, 3, 1, 2, 3)),
                *(produce("A", again=k) for k in range(1, 7)),
                produce("A"),
            ],
        )
        yield Script(
            f"sequence, {name}: gap and overlap",
            [
                *start,
                *(produce("A", n=2) for _ in range(3)),
                *(produce("A", n=n, shift=shift) for n in (1, 2, 3) for shift in (-3, -2, -1, 1, 2)),
                produce("A"),
            ],
        )
        yield Script(f"sequence, {name}: the first may be any", [*start, produce("A", seq=41), produce("A")])
        for first in (MAX_SEQUENCE - 1, MAX_SEQUENCE):
            yield Script(
                f"sequence, {name}: wrap from {first}",
                [
                    *start,
                    produce("A", n=3, seq=first),
                    produce("A", again=1),
                    produce("A", n=2),
                    produce("A", again=2),
                    produce("A", shift=1),
                ],
            )
        yield Script(
            f"sequence, {name}: wrap at a batch's end",
            [*start, produce("A", n=2, seq=MAX_SEQUENCE - 1), produce("A", n=2), produce("A", seq=MAX_SEQUENCE)],
        )
        yield Script(f"sequence, {name}: -1", [*start, produce("A", seq=-1), produce("A", seq=-5), produce("A")], False)
        steps = [*start, produce("A"), produce("A", 1), produce("A", 1), produce("A")]
        yield Script(f"sequence, {name}: partitions count apart", steps + [add("A", [1]), produce("A", 1)] * bool(id))


def _sequence_answers():
    for version in PRODUCE_VERSIONS:
        asked = {"version": version}
        yield Script(
            f"sequence: answers of produce v{version}",
            [
                foreign("A", 3, id=None),
                *(produce("A", n=2, acks=acks, **asked) for acks in (1, -1)),
                produce("A", again=1, **asked),
                produce("A", shift=3, **asked),
                alias("late", "A", epoch=-1),
                produce("late", **asked),
                produce("A", 9, **asked),
                produce("A", ["__consumer_offsets", 0], **asked),
            ],
        )
    yield Script(
        "sequence: goes on over transactions",
        [
            *OPEN,
            produce("A"),
            commit("A"),
            add("A"),
            produce("A", again=1),
            produce("A", seq=0, n=2),
            produce("A"),
            abort("A"),
            add("A"),
            produce("A"),
            commit("A"),
        ],
    )
    yield Script("sequence: a duplicate after the marker", [*OPEN, commit("A"), produce("A", again=1), produce("A")])


def _epochs():
    for transactional in (False, True):
        name = "transactional" if transactional else "idempotent"
        asked = {"txn": transactional, "name": False} if transactional else {"txn": False}
        yield Script(f"epoch, {name}: without a name", [init("A"), add("A"), produce("A", **asked), commit("A")])
    yield Script(
        "epoch: higher begins at 0",
        [
            foreign("A", 3, id=None),
            produce("A", n=2),
            alias("B", "A", epoch=1),
            produce("B"),
            produce("B", seq=0),
            produce("A"),
            produce("A", again=1),
            produce("B"),
            produce("B", seq=0),
            alias("C", "B", epoch=5),
            produce("C", seq=1),
            produce("C", seq=0),
            produce("B"),
        ],
    )
    yield Script(
        "epoch: forgets the last five",
        [
            foreign("A", 0, id=None),
            produce("A"),
            produce("A"),
            alias("B", "A", epoch=1),
            produce("B", again=2),
            produce("B", seq=1),
            produce("B", seq=0),
            produce("B", seq=1),
        ],
    )
    for epoch in (0, 32_766, 32_767):
        yield Script(
            f"epoch: {epoch} of an unknown producer",
            [
                foreign("A", epoch, id=None),
                produce("A", seq=9),
                produce("A"),
                alias("B", "A", epoch=-1 if epoch else 1),
                produce("B"),
            ],
        )
    yield Script("epoch: -1", [foreign("A", -1, id=None), produce("A"), produce("A", seq=7)], False)
    yield Script("epoch: a transactional batch of nobody", [produce("A")], False)
    yield Script("epoch: a batch of nobody", [produce("A", txn=False), produce("A", txn=False, seq=5)])


def _fence():
    """Two instances of one transactional id."""
    yield Script(
        "epoch: the fenced instance writes",
        [
            *OPEN,
            init("B"),
            init("B"),
            produce("A"),
            produce("A", 1),
            add("B", [0, 1]),
            produce("B"),
            produce("A"),
            produce("A", 1),
            produce("A", again=1),
            commit("B"),
            produce("A"),
        ],
    )
    yield Script(
        "epoch: the fenced instance writes before the new one",
        [
            *OPEN,
            commit("A"),
            init("B"),
            produce("A"),
            produce("A", again=1),
            produce("A", txn=False),
            add("B"),
            produce("A"),
            produce("A", txn=False),
            produce("B"),
            produce("A", txn=False),
            commit("B"),
        ],
    )
    yield Script(
        "epoch: a resumed instance goes on",
        [
            *OPEN,
            commit("A"),
            init("B", expected="A"),
            add("B"),
            produce("B", seq=1),
            produce("B"),
            produce("A"),
            abort("B"),
        ],
    )


def _verification():
    """Transactional batches are verified with the coordinator where the log does not know the transaction."""
    for version in PRODUCE_VERSIONS:
        asked = {"version": version}
        yield Script(
            f"verify, produce v{version}",
            [
                init("A"),
                init("A"),
                produce("A", **asked),
                add("A", [1]),
                produce("A", **asked),
                produce("A", 1, **asked),
                alias("other", "A", producer_id=1),
                alias("early", "A", epoch=1),
                alias("late", "A", epoch=-1),
                alias("unknown", "A", id="u"),
                alias("nobody", "A", id=""),
                *(
                    produce(who, place, **asked)
                    for who in ("other", "early", "late", "unknown", "nobody")
                    for place in (0, 1)
                ),
                commit("A"),
                produce("A", 1, **asked),
                produce("A", 1, again=1, **asked),
                produce("A", 0, **asked),
            ],
        )


def _verified_partitions():
    yield Script(
        "verify: not transactional inside a transaction",
        [
            *OPEN,
            produce("A", txn=False),
            produce("A", 1, txn=False),
            produce("A", 1),
            add("A", [1]),
            produce("A", 1),
            commit("A"),
            produce("A", txn=False),
            produce("A", 1, txn=False),
        ],
    )
    yield Script(
        "verify: transactional without an id",
        [
            init("A", None),
            produce("A", txn=True),
            produce("A", txn=True, version=3),
            produce("A"),
        ],
    )
    yield Script(
        "verify: no transaction after the outcome",
        [
            *OPEN,
            abort("A"),
            produce("A"),
            add("A", [1]),
            produce("A"),
            produce("A", 1),
            add("A"),
            produce("A"),
            commit("A"),
        ],
    )
    yield Script(
        "verify: a hanging transaction goes on",
        [
            *OPEN,
            produce("A"),
            fetch(0, 1),
            alias("early", "A", epoch=1),
            produce("early"),
            produce("A", n=4),
            list_offsets(0, 1),
        ],
    )


def _markers():
    """WriteTxnMarkers, as coordinators and administrators send it."""
    for commits in (True, False):
        name = "commit" if commits else "abort"
        yield Script(
            f"marker, {name}: ends a hanging transaction",
            [
                *OPEN,
                write_markers([marker("A", [0], commits)]),
                produce("A"),
                commit("A"),
                add("A"),
                produce("A"),
                abort("A"),
            ],
        )
        yield Script(
            f"marker, {name}: without a transaction",
            [
                foreign("X", 3),
                write_markers([marker("X", [0, 1], commits)]),
                write_markers([marker("X", [0], commits)]),
                produce("X", txn=False, seq=8),
                produce("X", txn=False, seq=0),
                produce("X", txn=False),
            ],
        )
        for epoch in (-1, 1, 5):
            yield Script(
                f"marker, {name}: epoch {epoch:+}",
                [
                    *OPEN,
                    commit("A"),
                    init("A"),
                    add("A"),
                    produce("A"),
                    alias("X", "A", epoch=epoch),
                    write_markers([marker("X", [0], commits)]),
                    produce("A"),
                    produce("X", txn=False),
                    commit("A"),
                    init("B"),
                    add("B"),
                    produce("B"),
                    commit("B"),
                ]
                if epoch < 0
                else [
                    *OPEN,
                    alias("X", "A", epoch=epoch),
                    write_markers([marker("X", [0], commits)]),
                    produce("A"),
                    produce("X", txn=False, seq=1),
                    produce("X", txn=False, seq=0),
                ],
            )


def _marker_requests():
    yield Script(
        "marker: coordinator epochs",
        [
            foreign("X", 3),
            *(write_markers([marker("X", [0], coordinator_epoch=epoch)]) for epoch in (4, 3, 4, 5, -1, 0)),
            alias("Y", "X", epoch=-1),
            write_markers([marker("Y", [0], coordinator_epoch=9)]),
            alias("Z", "X", epoch=2),
            write_markers([marker("Z", [0], coordinator_epoch=2)]),
            write_markers([marker("Z", [0], coordinator_epoch=6)]),
        ],
    )
    yield Script(
        "marker: several producers in one request",
        [
            foreign("X", 1, 1),
            foreign("Y", 2, 2),
            produce("X", txn=False),
            produce("Y", txn=False, n=3),
            write_markers([marker("X", [0, 1], False), marker("Y", [0, 7]), marker("X", [["d-nowhere", 0]])]),
            write_markers([]),
            write_markers([marker("X", [])]),
        ],
    )
    yield Script(
        "marker: of nobody",
        [
            foreign("X", -1),
            write_markers([marker("nobody", [0])]),
            write_markers([marker("X", [0])]),
            write_markers([marker("nobody", [["__consumer_offsets", 0]])]),
        ],
    )
    yield Script(
        "marker: of nobody, for an unknown partition too",
        [
            foreign("X", -1),
            write_markers([marker("X", [9])]),
            write_markers([marker("X", [0, 9])]),
        ],
    )
    yield Script("marker: the same partition twice", [foreign("X", 1), write_markers([marker("X", [0, 0])])])
    yield Script(
        "marker: a partition of groups",
        [
            *OPEN,
            add_offsets("A"),
            txn_offset_commit("A", [[0, 5]]),
            write_markers([marker("A", [["__consumer_offsets", p] for p in range(4)], True)]),
            offset_fetch(),
            offset_fetch(stable=True),
            abort("A"),
            offset_fetch(),
        ],
    )


def _stable_offset():
    yield Script(
        "marker: the last stable offset waits for the oldest",
        [
            init("A"),
            init("U", "u"),
            init("V", "v"),
            add("A"),
            add("U"),
            add("V"),
            produce("U"),
            produce("A", n=2),
            produce("V"),
            produce("A"),
            *_look(),
            commit("A"),
            *_look(),
            abort("V"),
            *_look(),
            commit("U"),
            *_look(),
        ],
    )


def _look():
    return [list_offsets(0, 1), fetch(0, 1)]
