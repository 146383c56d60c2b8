"""Scripts of transactional ids and groups as no client should send them: null, empty, very long, not UTF-8, odd.

Sources: `KafkaApis`, `TransactionCoordinator`, the generated readers of Kafka 4.3.1's messages.
"""

from differential.asking import NOT_UTF8, NULL
from differential.generation_tables import done, write
from differential.steps import (
    Script,
    add,
    add_many,
    add_offsets,
    alias,
    describe_transactions,
    end,
    find_coordinator,
    init,
    joining,
    list_matching,
    offset_fetch,
    produce,
    txn_offset_commit,
)

# With the prefix of the script still below what a string of the old versions can be.
LONGEST = "L" * 32_700
ODD = {
    "a space": " ",
    "a null character": "a\0b",
    "control characters": "\n\t\x7f",
    "two bytes": "é",
    "beyond the first plane": "𝄞",
    "a byte order mark": "\ufeff",
    "a replacement character": "\ufffd",
    "combining": "e\u0301",
    "like a topic": "__transaction_state",
    "dots": "../..",
    "of 249 characters": "n" * 240,
    "of 1000 characters": "n" * 1000,
}


def scripts():
    yield from _null()
    yield from _empty()
    yield from _odd()
    yield from _not_utf8()
    yield from _long()


def _requests(who, id):
    """Every request that names a transactional id, in every version; `who` has been given."""
    named = alias(who, "A", id=id)
    for version in range(6):
        yield f"InitProducerId {version}", [init("N", id, version=version, settle=False)]
    for version in range(4):
        yield f"AddPartitionsToTxn {version}", [named, add(who, version=version)]
    for version in (4, 5):
        for verify in (False, True):
            asked = add_many([joining(who, verify=verify), joining("A", [1])], version=version)
            yield f"AddPartitionsToTxn {version}, verify {verify}", [named, asked]
    for version in range(5):
        yield f"AddOffsetsToTxn {version}", [named, add_offsets(who, version=version)]
    for version in range(6):
        yield f"EndTxn {version}", [named, end(who, version=version, settle=False)]
        yield f"TxnOffsetCommit {version}", [named, txn_offset_commit(who, [[0, 1]], version=version)]
    for version in (3, 9, 11, 12, 13):
        yield f"Produce {version}", [named, produce(who, seq=0, version=version)]
    yield "DescribeTransactions", [describe_transactions([id])]
    for version in (1, 3, 4, 6):
        yield f"FindCoordinator {version}", [find_coordinator(id, version=version)]


def _null():
    for name, steps in _requests("N", NULL):
        if name.startswith(("InitProducerId", "Produce")):
            continue
        yield Script(f"null id: {name}", [init("A"), *steps, write("A"), done("A")])
    for version in range(6):
        steps = [txn_offset_commit("A", [[0, 1]], NULL, version=version)]
        yield Script(f"null group: TxnOffsetCommit {version}", [init("A"), *steps], False)
    for version in range(5):
        yield Script(
            f"null group: AddOffsetsToTxn {version}", [init("A"), add_offsets("A", NULL, version=version)], False
        )


def _empty():
    steps = [step for _, asked in _requests("N", "") for step in asked]
    yield Script("empty id: every request", [init("A"), *steps, write("A"), done("A")])
    yield Script("empty id: with offsets", [init("A"), find_coordinator("", kind=0), offset_fetch("")])


def _odd():
    for name, id in ODD.items():
        yield Script(
            f"odd id: {name}",
            [
                init("A", id),
                find_coordinator(id),
                find_coordinator(id, version=2),
                add("A"),
                produce("A"),
                end("A"),
                describe_transactions([id]),
                list_matching("A"),
                write("A"),
                txn_offset_commit("A", [[0, 2]], id, version=5),
                done("A"),
                offset_fetch(id),
            ],
        )


def _not_utf8():
    """Kafka reads what is not UTF-8 with replacement characters, and goes on with those."""
    steps = [step for _, asked in _requests("N", NOT_UTF8) for step in asked]
    yield Script("not UTF-8: every request", [init("A"), *steps, write("A"), done("A")], False)
    yield Script(
        "not UTF-8: a whole transaction",
        [
            init("A", NOT_UTF8),
            add("A"),
            produce("A"),
            end("A"),
            describe_transactions([NOT_UTF8]),
            list_matching("A", version=1),
            txn_offset_commit("A", [[0, 2]], NOT_UTF8, version=5),
            done("A"),
            offset_fetch(NOT_UTF8),
            offset_fetch(NOT_UTF8, version=1),
        ],
        False,
    )


def _long():
    steps = [init("A", LONGEST), add("A"), produce("A"), end("A"), describe_transactions([LONGEST]), list_matching("A")]
    yield Script("long id: 32,700 characters", [*steps, find_coordinator(LONGEST)], False)
    steps = [init("A"), write("A"), *(s for _, asked in _requests("N", LONGEST) for s in asked), done("A")]
    yield Script("long id: every request", steps, False)
