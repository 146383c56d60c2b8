"""Scripts of TxnOffsetCommit: membership, generations, what is pending and what readers see of it.

Sources: `OffsetMetadataManager`, `GroupCoordinatorService.commitTransactionalOffsets` of Kafka 4.3.1; KIP-447.
"""

from differential.generation_tables import done, write
from differential.steps import (
    SHORT_MS,
    Script,
    add_offsets,
    alias,
    await_timeout,
    describe_transactions,
    end,
    init,
    join,
    leave,
    offset_fetch,
    pause,
    txn_offset_commit,
)

VERSIONS = (3, 4, 5)


def scripts():
    yield from _members()
    yield from _states_of_groups()
    yield from _pending()
    yield from _verification()


def _begun(version):
    return [init("A"), *([add_offsets("A")] if version < 5 else [])]


def _end(version, commits=True):
    return end("A", commits, version=5 if version == 5 else 4)


def _members():
    for version in VERSIONS:
        for instance in (None, "i"):
            wrong = [
                {"of": "m", "shift": -1},
                {"of": "m", "shift": 1},
                {"generation": 1, "member": "stranger"},
                {"generation": 1, "member": ""},
                {"generation": -1, "member": "stranger"},
                {"of": "m", "instance": "other"},
                {"of": "m", "instance": instance},
                {"generation": 1, "member": "stranger", "instance": instance},
                {"generation": -1, "member": "", "instance": instance or "i"},
                {"generation": -1},
                {"of": "m"},
            ]
            yield Script(
                f"members {version}: {'static' if instance else 'dynamic'}",
                [
                    join("m", instance=instance),
                    *_begun(version),
                    *(
                        step
                        for number, who in enumerate(wrong)
                        for step in (
                            txn_offset_commit("A", [[0, number]], version=version, **who),
                            offset_fetch(stable=True),
                        )
                    ),
                    describe_transactions(),
                    _end(version),
                ],
            )


def _states_of_groups():
    for version in VERSIONS:
        commits = [
            txn_offset_commit("A", [[0, 1]], version=version, of="m"),
            txn_offset_commit("A", [[0, 2]], version=version, of="m", shift=-1),
            txn_offset_commit("A", [[0, 3]], version=version),
            txn_offset_commit("A", [[0, 4]], version=version, generation=1, member="stranger"),
        ]
        begun = _begun(version)
        ended = [_end(version)]
        yield Script(
            f"group {version}: the member has left", [join("m"), leave("m"), *begun, *commits, *ended], looks_back=True
        )
        yield Script(f"group {version}: not synchronised", [join("m", sync=False), *begun, *commits, *ended])
        yield Script(
            f"group {version}: another member comes",
            [join("m"), join("n", wait=False), pause(100), *begun, *commits, *ended],
        )
        yield Script(f"group {version}: the member has joined again", [join("m"), join("m"), *begun, *commits, *ended])
        yield Script(
            f"group {version}: of nobody, then of a member",
            [*begun, txn_offset_commit("A", [[0, 9]], version=version), join("m"), *commits, *ended],
        )
        yield Script(
            f"group {version}: the member leaves in the transaction",
            [join("m"), *begun, commits[0], leave("m"), *commits, *ended],
        )

    yield Script(
        "group: nothing was committed yet",
        [
            init("A"),
            txn_offset_commit("A", [[0, 9]], version=5),
            txn_offset_commit("A", [[0, 8]], version=5, generation=0),
            txn_offset_commit("A", [[0, 8]], version=5, generation=1, member="stranger"),
            done("A", False),
            txn_offset_commit("A", [[0, 8]], version=5, generation=0),
            txn_offset_commit("A", [[0, 8]], version=5, generation=1, member="stranger"),
        ],
        False,
    )


def _pending():
    """Pending and committed offsets of several transactions, as readers see them."""
    look = [offset_fetch(stable=True), offset_fetch(), offset_fetch(stable=True, version=7), offset_fetch(version=5)]
    for version in VERSIONS:
        last = 5 if version == 5 else 4
        for first in (True, False):
            for second in (True, False):
                yield Script(
                    f"pending {version}: two transactions, {'commit' if first else 'abort'}, "
                    f"{'commit' if second else 'abort'}",
                    [
                        init("A"),
                        init("U", "u"),
                        *([add_offsets("A"), add_offsets("U")] if version < 5 else []),
                        txn_offset_commit("A", [[0, 5], [1, 6]], version=version, metadata="a", leader_epoch=0),
                        txn_offset_commit("U", [[0, 3]], version=version, metadata="u", leader_epoch=7),
                        *look,
                        txn_offset_commit("A", [[0, 8]], version=version),
                        *look,
                        end("U", first, version=last),
                        *look,
                        end("A", second, version=last),
                        *look,
                    ],
                )
        yield Script(
            f"pending {version}: dropped when it times out",
            [
                init("A", timeout_ms=SHORT_MS),
                *([add_offsets("A")] if version < 5 else []),
                txn_offset_commit("A", [[0, 5]], version=version),
                *look,
                await_timeout(),
                *look,
                txn_offset_commit("A", [[0, 6]], version=version),
                *look,
            ],
        )
        yield Script(
            f"pending {version}: two groups in one transaction",
            [
                init("A"),
                *([add_offsets("A"), add_offsets("A", "h")] if version < 5 else []),
                txn_offset_commit("A", [[0, 5]], version=version),
                txn_offset_commit("A", [[0, 6], [1, 7]], "h", version=version),
                offset_fetch("h", stable=True),
                *look,
                end("A", version=last),
                *look,
                txn_offset_commit("A", [[1, 9]], "h", version=version),
                end("A", False, version=last),
            ],
        )
        yield Script(
            f"pending {version}: odd offsets",
            [
                *_begun(version),
                txn_offset_commit("A", [[0, 2**63 - 1], [1, -1]], version=version, leader_epoch=2**31 - 1),
                txn_offset_commit("A", [[0, -(2**63)]], version=version, leader_epoch=-2),
                txn_offset_commit("A", [[0, 1], [0, 2]], version=version),
                txn_offset_commit("A", [[1, 3]], version=version, metadata="é" * 2048),
                txn_offset_commit("A", [[1, 4]], version=version, metadata="é" * 2049),
                txn_offset_commit("A", [[1, 5]], version=version, metadata="x" * 4096),
                txn_offset_commit("A", [[1, 6]], version=version, metadata=None),
                *look,
                end("A", version=last),
            ],
        )


def _verification():
    """Version 5 adds the group's partition itself, whatever becomes of the commit."""
    yield Script(
        "verification 5: what is refused is added nevertheless",
        [
            join("m"),
            init("A"),
            txn_offset_commit("A", [[0, 1]], version=5, of="m", shift=1),
            describe_transactions(),
            txn_offset_commit("A", [[0, 1]], version=5, generation=1, member="stranger"),
            done("A"),
            txn_offset_commit("A", [[9, 1]], version=5),
            describe_transactions(),
            txn_offset_commit("A", [[0, 1], [9, 1]], version=5, metadata="x" * 5000),
            describe_transactions(),
            done("A", False),
            txn_offset_commit("A", [], version=5),
            describe_transactions(),
            txn_offset_commit("A", [[0, 1]], "", version=5),
            describe_transactions(),
        ],
    )
    for version in (3, 4):
        yield Script(
            f"verification {version}: the partition of the group was not added",
            [
                init("A"),
                write("A"),
                txn_offset_commit("A", [[0, 1]], version=version),
                offset_fetch(stable=True),
                add_offsets("A", version=version),
                txn_offset_commit("A", [[0, 2]], version=version),
                alias("late", "A", epoch=-1),
                alias("early", "A", epoch=1),
                txn_offset_commit("early", [[0, 3]], version=version),
                offset_fetch(stable=True),
                done("A"),
                txn_offset_commit("early", [[0, 4]], version=version),
                txn_offset_commit("A", [[0, 5]], version=version),
            ],
        )
