"""Scripts in which both generations of transactions meet on one transactional id, in every order.

A broker takes the generation from each request: the client may have been replaced by an older or a newer one, and
`transaction.version` may change while a transaction is open. Sources as in `generation_tables.py`.
"""

from differential.generation_tables import done, write
from differential.steps import (
    Script,
    abort,
    add,
    add_many,
    add_offsets,
    alias,
    commit,
    describe_transactions,
    end,
    fetch,
    init,
    joining,
    level,
    marker,
    produce,
    txn_offset_commit,
    write_markers,
)

LEVELS = (0, 1, 2)


def scripts():
    """Return the scripts that both levels 1 and 2 can answer."""
    yield from _zombies()
    yield from _orders()
    yield from _inside()
    yield from _races()


def scripts_of_levels():
    """The level changes while they run, so one starting level is enough."""
    yield from _level_changes()
    yield from _levels_and_aborts()


def old(who, commits=True, partition=0):
    """A whole transaction of the first generation."""
    return [add(who, [partition]), produce(who, partition, version=11), end(who, commits, version=4)]


def new(who, commits=True, partition=0):
    """A whole transaction of the second generation."""
    return [write(who, partition), done(who, commits)]


# ---- a client of the second generation that was replaced by one of the first


def _successors():
    """{state: steps after which the id stands so, one epoch above the zombie}."""
    return {
        "Empty": [],
        "Ongoing": [add("B"), produce("B")],
        "CompleteCommit": old("B"),
        "CompleteAbort": old("B", False),
        "two transactions": [*old("B"), *old("B", False, 1)],
        "Ongoing, of the second generation": [write("B")],
        "CompleteCommit, of the second generation": [write("B"), done("B"), alias("Z", "B", epoch=-1)],
    }


def _zombies():
    """The successor's InitProducerId moved the epoch by one, as an EndTxn 5 does: is the zombie's taken for that?"""
    begun = [init("A"), *new("A"), alias("Z", "A"), alias("Y", "A"), init("B", version=1)]
    for state, steps in _successors().items():
        for commits in (True, False):
            name = "commit" if commits else "abort"
            yield Script(
                f"zombie: {name} 5 on a successor in {state}",
                [
                    *begun,
                    *steps,
                    done("Z", commits),
                    done("Y", not commits),
                    describe_transactions(),
                    write("Z"),
                    write("Z", 1, seq=0),
                    done("Z", commits),
                    add("B", [1]),
                    produce("B", 1),
                    commit("B"),
                ],
            )
        yield Script(
            f"zombie: other requests on a successor in {state}",
            [
                *begun,
                *steps,
                write("Z"),
                write("Z", 1, seq=0),
                produce("Z", version=11, seq=0),
                txn_offset_commit("Z", [[0, 1]], version=5),
                txn_offset_commit("Z", [[0, 1]], version=4),
                add("Z", [1]),
                add_offsets("Z", version=4),
                end("Z", version=4, settle=False),
                end("Z", False, version=1, settle=False),
                init("C", expected="Z"),
                add("B", [1]),
            ],
        )
    yield from _other_zombies(begun)


def _other_zombies(begun):
    yield Script(
        "zombie: with a transaction open when the successor came",
        [
            *begun[:-1],
            write("A"),
            init("B", version=1),
            done("Z", False),
            init("B", version=1),
            done("Z", False),
            done("Y"),
            *old("B"),
            done("A"),
        ],
    )
    yield Script(
        "zombie: of the first generation on a successor of the second",
        [
            init("A"),
            *old("A"),
            alias("Z", "A"),
            init("B"),
            end("Z", version=4),
            write("B"),
            *old("Z"),
            done("B"),
            *old("Z"),
        ],
    )
    yield Script(
        "zombie: goes on with the epoch that it was given",
        [
            *begun,
            *old("B"),
            done("Z"),
            write("Z"),
            fetch(0, 1),
            commit("B"),
            describe_transactions(),
            write("Z", 1),
            done("Z"),
            *old("B"),
            *new("B"),
        ],
    )


# ---- whole transactions in every order


def _orders():
    kinds = {
        "V1 commit": old("A"),
        "V1 abort": old("A", False),
        "V2 commit": new("A"),
        "V2 abort": new("A", False),
        "empty abort": [done("A", False)],
        "adds 3, EndTxn 5": [add("A"), produce("A", version=10), done("A")],
        "Produce 12, EndTxn 3": [write("A"), end("A", version=3)],
        "resume": [init("A", expected="A")],
        "new instance": [init("A", version=2)],
        "offsets 3": [add_offsets("A"), txn_offset_commit("A", [[0, 1]]), commit("A")],
        "offsets 5": [txn_offset_commit("A", [[0, 2]], version=5), done("A")],
    }
    for first, begun in kinds.items():
        for second, then in kinds.items():
            if first != second:
                yield Script(f"order: {first}, {second}, {first}", [init("A"), *begun, *then, *begun, *then])


# ---- one transaction, begun, continued and ended in different generations


def _inside():
    adds = {
        "AddPartitions 1": lambda p: [add("A", [p], version=1), produce("A", p, version=9)],
        "AddPartitions 3": lambda p: [add("A", [p]), produce("A", p, version=11)],
        "AddPartitions 3, Produce 12": lambda p: [add("A", [p]), write("A", p)],
        "AddPartitions 5, Produce 11": lambda p: [add_many([joining("A", [p])]), produce("A", p, version=11)],
        "Produce 12": lambda p: [write("A", p)],
        "Produce 12, then 11": lambda p: [write("A", p), produce("A", p, version=11)],
        "AddOffsets 3": lambda p: [add_offsets("A"), txn_offset_commit("A", [[p, 3]])],
        "AddOffsets 4, TxnOffsetCommit 5": lambda p: [
            add_offsets("A", version=4),
            txn_offset_commit("A", [[p, 4]], version=5),
        ],
        "TxnOffsetCommit 5": lambda p: [txn_offset_commit("A", [[p, 5]], version=5)],
        "TxnOffsetCommit 5, then 3": lambda p: [
            txn_offset_commit("A", [[p, 6]], version=5),
            txn_offset_commit("A", [[p, 7]]),
        ],
    }
    number = 0
    for first, begun in adds.items():
        for second, then in adds.items():
            # Each pair with one ending; all endings come in turn.
            version, commits = (5, 4, 3)[number % 3], number % 2 == 0
            number += 1
            ended = end("A", commits, version=version)
            again = end("A", commits, version=4 if version == 5 else 5)
            yield Script(
                f"inside: {first}; {second}; EndTxn {version}",
                [init("A"), *begun(0), *then(1), describe_transactions(), ended, again, ended, *begun(1), commit("A")],
            )
    for version in (3, 4):
        for refused in (3, 4, 5):
            yield Script(
                f"inside: TxnOffsetCommit {refused} without AddOffsets, EndTxn {version}",
                [
                    init("A"),
                    txn_offset_commit("A", [[0, 1]], version=refused),
                    write("A"),
                    txn_offset_commit("A", [[0, 2]], version=refused),
                    end("A", version=version),
                    txn_offset_commit("A", [[0, 3]], version=refused),
                    abort("A", version=version),
                ],
            )


def _races():
    """A retry of each generation's EndTxn after the other one's, and across the next transaction."""
    for commits in (True, False):
        name = "commit" if commits else "abort"
        for then in (True, False):
            yield Script(
                f"race: {name} 5 delayed until after {'commit' if then else 'abort'} 4 of the next transaction",
                [
                    init("A"),
                    alias("Z", "A"),
                    *new("A", commits),
                    done("Z", commits),
                    *old("A", then),
                    alias("Y", "A", epoch=-1),
                    done("Y", commits),
                    done("Y", not commits),
                    *old("A", then),
                    end("A", commits, version=4),
                    done("A", commits),
                ],
            )
    yield Script(
        "race: markers of both generations in one transaction",
        [
            init("A"),
            write("A"),
            write_markers([marker("A", [0], False)]),
            write("A"),
            write_markers([marker("A", [0], False, generation=2)], version=2),
            alias("X", "A", epoch=1),
            write_markers([marker("X", [0], False, generation=2)], version=2),
            write("A"),
            done("A"),
            write("A"),
            done("A", False),
        ],
    )


# ---- the level changes


def _level_changes():
    """UpdateFeatures while a transaction is open, with every generation of client before and after."""
    begins = {"V1": [add("A"), produce("A", version=11)], "V2": [write("A")]}
    for before in LEVELS:
        for after in LEVELS:
            if before == after:
                continue
            for generation, begun in begins.items():
                if generation == "V2" and before == 0:
                    continue
                for version in (4, 5):
                    for commits in (True, False):
                        yield Script(
                            f"level {before} to {after}: {generation} open, "
                            f"{'commit' if commits else 'abort'} {version}",
                            [
                                level(before),
                                init("A"),
                                *begun,
                                level(after),
                                describe_transactions(),
                                produce("A", version=11),
                                end("A", commits, version=version, settle=after > 0 or version < 5),
                                describe_transactions(),
                                *([] if after == 0 and version == 5 else [init("A", expected="A"), *old("A")]),
                                level(),
                            ],
                        )

    yield Script(
        "level 2 to 0: the transaction of V2 cannot end",
        [
            level(2),
            init("A"),
            write("A"),
            level(0),
            done("A", settle=False),
            init("B", settle=False),
            end("A", version=4),
        ],
        False,
    )


def _levels_and_aborts():
    """The coordinator's own aborts follow the level that holds then, whatever the client is."""
    for before in LEVELS:
        for after in LEVELS:
            begun = [write("A")] if before else [add("A"), produce("A")]
            fenced = [alias("B", "A"), init("B"), init("B")]
            yield Script(
                f"level {before} to {after}: a new instance",
                [level(before), init("A"), *begun, level(after), *fenced, done("A", False), *old("B"), level()],
            )
            resumed = [alias("B", "A"), init("B", expected="A"), init("B", expected="A"), *old("B")]
            yield Script(
                f"level {before} to {after}: resumed",
                [level(before), init("A"), *begun, level(after), *resumed, level()],
            )
            if before != after:
                yield Script(
                    f"level {before} to {after}: between transactions",
                    [
                        level(before),
                        init("A"),
                        *old("A"),
                        level(after),
                        *old("A"),
                        init("A"),
                        *old("A", False),
                        level(),
                    ],
                )
