"""Scripts at the end of the epochs: 32,766 is the last that anybody is given, in both generations and mixed.

Sources: `TransactionMetadata.isProducerEpochExhausted`, `prepareAbortOrCommit` of Kafka 4.3.1; KIP-360, KIP-890.
"""

from differential.generation_tables import done, write
from differential.steps import (
    SHORT_MS,
    Script,
    abort,
    add,
    alias,
    await_timeout,
    commit,
    describe_transactions,
    end,
    init,
    init_many,
    produce,
    txn_offset_commit,
)

# So many times InitProducerId gives the epoch 32,766.
ALL = 32_767


def scripts():
    for before in (1, 0):
        at = [init_many("A", ALL - before), alias("Z", "A"), alias("Y", "A", epoch=-1)]
        name = f"exhaustion {32_766 - before}"
        zombies = [
            done("Z"),
            done("Z", False),
            done("Y"),
            done("Y", False),
            end("Z", version=4),
            write("Z"),
            produce("Z", 1, version=11),
            txn_offset_commit("Z", [[0, 1]], version=5),
            add("Z"),
            describe_transactions(),
        ]
        yield from _outcomes(name, at, zombies, before == 0)
        yield from _fences(name, at, zombies)


def _outcomes(name, at, zombies, commits):
    kind = "commit" if commits else "abort"
    yield Script(
        f"{name}: V1 {kind}, then V2",
        [
            *at,
            add("A"),
            produce("A"),
            end("A", commits, version=4),
            write("A"),
            done("A", commits),
            *zombies,
            write("A"),
            done("A"),
            init("B", expected="Z"),
            init("C"),
        ],
    )
    yield Script(
        f"{name}: V2 {kind}, then V1",
        [
            *at,
            write("A"),
            done("A", commits),
            *zombies,
            add("A"),
            produce("A"),
            end("A", commits, version=4),
            *zombies,
            init("B", expected="A"),
            init("C", expected="A"),
        ],
    )


def _fences(name, at, zombies):
    yield Script(
        f"{name}: fenced by a new instance",
        [*at, write("A"), init("B"), describe_transactions(), init("B"), *zombies, write("B"), done("B")],
    )
    yield Script(
        f"{name}: fenced by a new instance, V1",
        [*at, add("A"), produce("A"), init("B", version=1), init("B", version=1), commit("A"), *zombies, add("B")],
    )
    yield Script(
        f"{name}: resumed with an open transaction",
        [*at, write("A"), init("B", expected="A"), init("B", expected="A"), *zombies, init("C", expected="Z")],
    )
    yield Script(
        f"{name}: timed out",
        [
            *at,
            init("A", timeout_ms=SHORT_MS, expected="A"),
            write("A"),
            await_timeout(),
            *zombies,
            done("A", False),
            done("A"),
            init("B", expected="A"),
            write("B"),
            abort("B"),
        ],
    )
