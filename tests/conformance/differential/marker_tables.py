"""Scripts of WriteTxnMarkers: every generation of marker on a producer in every condition, and producers at the end.

A marker of version 1 and one that names generation 0 or 1 are of the first generation, 2 and above of the second.
Sources: `ProducerAppendInfo.checkProducerEpoch`, `KafkaApis.handleWriteTxnMarkersRequest` of Kafka 4.3.1; KIP-890.
"""

from differential.generation_tables import done, write
from differential.steps import (
    Script,
    abort,
    add,
    add_offsets,
    alias,
    commit,
    describe_producers,
    describe_transactions,
    end,
    fetch,
    foreign,
    init,
    init_many,
    list_offsets,
    logged,
    marker,
    offset_fetch,
    pause,
    produce,
    txn_offset_commit,
    write_markers,
)

GROUPS = [["__consumer_offsets", index] for index in range(4)]
# Name: (version of the request, generation that the marker names).
KINDS = {"1": (1, 0), "2 of 0": (2, 0), "2 of 1": (2, 1), "2 of 2": (2, 2)}
LAST_EPOCH = 32_767


def scripts():
    yield from _conditions()
    yield from _last_epochs()
    yield from _coordinator_epochs()
    yield from _groups()
    yield from _requests()
    yield from _refuse()


def mark(kind, who, partitions=(0,), commits=True, *, epoch=0):
    version, generation = KINDS[kind]
    row = marker(who, partitions, commits, coordinator_epoch=epoch, generation=generation)
    return write_markers([row], version=version)


def _conditions():
    conditions = {
        "unknown": [foreign("A", 3)],
        "idempotent": [foreign("A", 3, id=None), produce("A"), produce("A", n=2)],
        "begun by V1": [init("A"), init("A"), add("A"), produce("A")],
        "begun by V2": [init("A"), init("A"), write("A"), write("A", n=2)],
        "ended by V1": [init("A"), init("A"), add("A"), produce("A"), commit("A")],
        "ended by V2": [init("A"), write("A"), done("A")],
        "added, not written": [init("A"), init("A"), add("A")],
    }
    for kind in KINDS:
        for condition, steps in conditions.items():
            for epoch in (-1, 0, 1, 2):
                commits = epoch % 2 == 0
                txn = not condition.startswith("idem") and condition != "unknown"
                yield Script(
                    f"marker {kind}: {condition}, epoch {epoch:+}",
                    [
                        *steps,
                        alias("X", "A", epoch=epoch),
                        mark(kind, "X", commits=commits),
                        mark(kind, "X", commits=commits),
                        mark(kind, "X", commits=not commits),
                        describe_producers([0]),
                        list_offsets(0, 1),
                        produce("A", txn=txn),
                        produce("A", txn=txn, seq=0),
                        produce("X", txn=False, seq=0),
                        *([abort("A", settle=epoch <= 0), write("A", seq=0), done("A")] if txn and epoch <= 0 else []),
                    ],
                )


def _last_epochs():
    for kind in KINDS:
        for epoch in (LAST_EPOCH - 1, LAST_EPOCH):
            yield Script(
                f"marker {kind}: epoch {epoch}",
                [
                    foreign("A", epoch, id=None),
                    mark(kind, "A"),
                    mark(kind, "A"),
                    produce("A", txn=False, seq=3),
                    produce("A", txn=False, seq=0),
                    mark(kind, "A", commits=False),
                    alias("B", "A", epoch=1),
                    mark(kind, "B", commits=False),
                    mark(kind, "B"),
                    produce("B", txn=False, seq=0),
                    mark(kind, "A"),
                ],
            )
        yield Script(
            f"marker {kind}: a transaction at the last epoch",
            [
                init_many("A", LAST_EPOCH),
                write("A"),
                mark(kind, "A"),
                alias("B", "A", epoch=1),
                mark(kind, "B"),
                mark(kind, "B", commits=False),
                write("A"),
                done("A"),
                write("A"),
                done("A"),
            ],
        )


def _coordinator_epochs():
    for kind in ("1", "2 of 2"):
        for begun, steps in {"nobody": [foreign("A", 3)], "a transaction": [init("A"), write("A")]}.items():
            yield Script(
                f"marker {kind}: coordinator epochs after {begun}",
                [
                    *steps,
                    *(
                        step
                        for number, epoch in enumerate((-1, 0, 4, 3, 4, 5, 0, -1, 2**31 - 1, 5))
                        for step in (
                            alias("X", "A", epoch=number + 1),
                            mark(kind, "X", epoch=epoch),
                            mark(kind, "X", epoch=epoch),
                        )
                    ),
                    describe_producers([0]),
                ],
            )

        for begun, steps in {
            "nobody": [foreign("A", 3)],
            "an idempotent producer": [foreign("A", 3, id=None), produce("A")],
            "a transaction": [init("A"), write("A")],
            "pending offsets": [init("A"), add_offsets("A"), txn_offset_commit("A", [[0, 5]])],
        }.items():
            yield Script(
                f"marker {kind}: coordinator epochs below none after {begun}",
                [
                    *steps,
                    alias("X", "A", epoch=1),
                    mark(kind, "X", [0, *GROUPS], epoch=-2),
                    mark(kind, "X", [0, *GROUPS], epoch=-(2**31)),
                    fetch(0, 1),
                    offset_fetch(stable=True),
                    mark(kind, "X", [0, *GROUPS], epoch=-1),
                    mark(kind, "X", [0, *GROUPS], epoch=-2),
                    offset_fetch(stable=True),
                    describe_producers([0]),
                ],
            )


def _groups():
    """Markers to the partitions of groups, where offsets are pending."""
    for kind in KINDS:
        for epoch in (-1, 0, 1):
            for commits in (True, False):
                yield Script(
                    f"marker {kind}: pending offsets, epoch {epoch:+}, {'commit' if commits else 'abort'}",
                    [
                        init("A"),
                        init("A"),
                        add_offsets("A"),
                        txn_offset_commit("A", [[0, 5], [1, 6]]),
                        alias("X", "A", epoch=epoch),
                        mark(kind, "X", GROUPS, commits),
                        offset_fetch(stable=True),
                        mark(kind, "X", GROUPS, not commits),
                        offset_fetch(stable=True),
                        txn_offset_commit("A", [[0, 7]]),
                        offset_fetch(stable=True),
                        # A marker of a newer epoch makes the partition refuse that of the transaction: see `_refuse`.
                        *([end("A", version=4)] if epoch <= 0 else []),
                    ],
                )
        yield Script(
            f"marker {kind}: offsets of the second generation",
            [
                init("A"),
                txn_offset_commit("A", [[0, 5]], version=5),
                mark(kind, "A", GROUPS),
                offset_fetch(stable=True),
                alias("X", "A", epoch=1),
                mark(kind, "X", GROUPS),
                mark(kind, "X", GROUPS),
                offset_fetch(stable=True),
                txn_offset_commit("A", [[0, 6]], version=5),
                done("A"),
                txn_offset_commit("A", [[0, 7]], version=5),
                done("A", False),
            ],
        )


def _requests():
    begun = [init("A"), init("U", "u"), write("A"), write("A", 1), write("U"), alias("X", "A", epoch=1)]
    for version in (1, 2):
        generation = 2 if version == 2 else 0

        def row(who, partitions, commits=True, generation=generation):
            return marker(who, partitions, commits, generation=generation)

        yield Script(
            f"marker requests {version}: one producer in several markers",
            [
                *begun,
                write_markers([row("X", [0]), row("X", [1], False)], version=version),
                describe_producers(),
                write_markers([row("X", [0]), row("U", [0], False), row("X", [1])], version=version),
                describe_producers(),
                done("A"),
                done("U"),
            ],
        )
        yield Script(
            f"marker requests {version}: two epochs of one producer",
            [
                *begun,
                alias("Y", "X", epoch=1),
                write_markers([row("Y", [0]), row("X", [1])], version=version),
                describe_producers(),
                done("U", False),
            ],
        )
        yield Script(
            f"marker requests {version}: groups and topics together",
            [
                *begun,
                txn_offset_commit("A", [[0, 4]], version=5),
                write_markers([row("X", [0, 1, *GROUPS])], version=version),
                offset_fetch(stable=True),
                describe_producers(),
                done("A"),
                done("U"),
            ],
        )
        yield Script(
            f"marker requests {version}: internal topics that have no such partition",
            [
                *begun,
                write_markers([row("X", [["__consumer_offsets", 99], 0])], version=version),
                write_markers([row("X", [["__transaction_state", 99], 1])], version=version),
                fetch(0, 1),
                done("A"),
                done("U"),
            ],
        )
    for generation in (-2, -1, 3, 127):
        yield Script(
            f"marker requests 2: generation {generation}",
            [
                *begun,
                txn_offset_commit("A", [[0, 4]], version=5),
                *(
                    write_markers([marker("X", places, generation=generation)], version=2)
                    for places in ([0], [1, 9], [*GROUPS, 0], [["d-nowhere", 0]])
                ),
                offset_fetch(stable=True),
                done("A"),
                done("U"),
            ],
        )


def _refuse():
    """Let a partition refuse a marker: the coordinator stops sending it until it is loaded again.

    Another marker has raised the partition's epoch of the producer above that of the transaction.
    """
    for name, begun, ended in (
        ("V1", [add("A", [0, 1]), produce("A"), produce("A", 1)], lambda commits: end("A", commits, settle=False)),
        ("V2", [write("A"), write("A", 1)], lambda commits: done("A", commits, settle=False)),
    ):
        for commits in (True, False):
            yield Script(
                f"marker refused: {name} {'commit' if commits else 'abort'}",
                [
                    init("A"),
                    *begun,
                    alias("X", "A", epoch=5),
                    mark("1", "X"),
                    ended(commits),
                    pause(200),
                    describe_transactions(),
                    fetch(1, 1),
                    init("B", settle=False),
                    logged(),
                ],
                False,
            )
