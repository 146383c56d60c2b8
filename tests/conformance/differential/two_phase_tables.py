"""Scripts of two-phase commit (KIP-939), for brokers with its options off and on.

Sources: `KafkaApis`, `TransactionCoordinator`, `TransactionStateManager` of Kafka 4.3.1.
"""

from differential.steps import (
    SHORT_MS,
    Script,
    abort,
    add,
    await_timeout,
    commit,
    describe_transactions,
    foreign,
    init,
    list_offsets,
    listed_versions,
    produce,
)

INIT_PRODUCER_ID = 22
UNSTABLE = {"unstable.api.versions.enable": "true"}
ENABLED = {"transaction.two.phase.commit.enable": "true"}
OPTIONS = {"stable": ENABLED, "unstable": UNSTABLE, "two-phase-commit": UNSTABLE | ENABLED}
"""The options of the brokers, by the name of the recording."""
TWO_PHASE = {"version": 6, "two_phase": True}
OPEN = [init("A", **TWO_PHASE), add("A"), produce("A")]


def scripts(setting):
    """Return the scripts for brokers with these options, in a fixed order."""
    yield Script("2PC: listed versions", [listed_versions(INIT_PRODUCER_ID)])
    if setting == "stable":
        yield Script("2PC: version 6 is not served", [init("A", version=6), init("A")])
        return
    yield from _requests()
    if setting == "two-phase-commit":
        yield from _transactions()


def _requests():
    for two_phase in (False, True):
        for keep in (False, True):
            flags = {"version": 6, "two_phase": two_phase, "keep": keep}
            name = f"2PC {two_phase}, keep {keep}"
            yield Script(f"{name}: a new id", [init("A", **flags), init("A", **flags), init("A")])
            yield Script(f"{name}: no id", [init("A", None, **flags)])
            yield Script(f"{name}: empty id", [init("A", "", **flags)])
            yield Script(f"{name}: half an expectation", [init("A", expected=[5, -1], **flags)])
            for timeout_ms in (-5, 0, 900_000, 900_001, 2**31 - 1):
                steps = [init("A", timeout_ms=timeout_ms, **flags), describe_transactions()]
                yield Script(f"{name}: timeout {timeout_ms}", steps)


def _transactions():
    short = {"timeout_ms": SHORT_MS}
    both_open = [*OPEN, init("U", "u", **short), add("U", [1]), produce("U", 1)]
    yield Script(
        "2PC: time ends the other transaction only",
        [*both_open, await_timeout("u"), describe_transactions(["t", "u"]), list_offsets(0, 1), commit("A")],
    )
    yield Script("2PC: the timeout of the request is ignored", [init("A", **TWO_PHASE, **short), *OPEN[1:], abort("A")])
    yield Script("2PC: transactions V2", [init("A", **TWO_PHASE), produce("A", version=12), commit("A", version=5)])
    for name, flags in {
        "again": TWO_PHASE,
        "without it": {"version": 6},
        "as the admin client terminates it": {"version": 5},
    }.items():
        then = [init("B", **flags), init("B", **flags), produce("A"), commit("A"), add("B"), produce("B"), commit("B")]
        yield Script(f"2PC: an open transaction is initialized {name}", [*OPEN, *then])
    yield Script(
        "2PC: an open transaction is not kept", [*OPEN, init("B", version=6, keep=True), produce("A"), commit("A")]
    )
    yield Script(
        "2PC: a closed one is ordinary again", [*OPEN, commit("A"), init("A", **short), add("A"), await_timeout()]
    )
    resumed = [init("A", expected="A", **TWO_PHASE), init("A", expected="A", **TWO_PHASE)]
    yield Script("2PC: an instance resumes", [init("A", **TWO_PHASE), *resumed])
    yield Script("2PC: a foreign instance is fenced", [*OPEN, foreign("X", 7), init("B", expected="X", **TWO_PHASE)])
