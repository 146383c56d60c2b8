"""Scripts of a partition's producer state, beyond `partition_tables`: both generations, several batches in a request.

Sources: `ProducerAppendInfo`, `ProducerStateEntry`, `UnifiedLog`, `KafkaApis.handleProduceRequest` of Kafka 4.3.1.
"""

from differential.generation_tables import done, write
from differential.steps import (
    Script,
    add,
    alias,
    batch,
    commit,
    describe_producers,
    end,
    fetch,
    foreign,
    init,
    marker,
    pause,
    produce,
    produce_many,
    write_markers,
)

LAST = 2**31 - 1
GENERATIONS = {
    "idempotent": (lambda: [init("A", None)], [], produce, list),
    "V1": (lambda: [init("A"), add("A", [0, 1])], [add("A", [0, 1])], produce, lambda: [commit("A")]),
    "V2": (lambda: [init("A")], [], write, lambda: [done("A")]),
}


def scripts():
    yield from _window()
    yield from _wraps()
    yield from _first_sequences()
    yield from _epochs()
    yield from _after_markers()
    yield from _batches()


def _window():
    """The last five batches are known; the sixth is not."""
    for name, (begin, _, send, _) in GENERATIONS.items():
        for size in range(1, 8):
            steps = [*begin(), *(send("A", n=1 + k % 3) for k in range(size))]
            again = [send("A", again=k) for k in range(1, size + 1)]
            parts = [send("A", seq=0, n=2), send("A", seq=1, n=1), send("A", seq=0, n=size), send("A", shift=-1, n=2)]
            yield Script(f"window, {name}: {size} batches", [*steps, *again, *parts, send("A"), *again])


def _wraps():
    for name, (begin, _, send, close) in GENERATIONS.items():
        start = LAST - 4
        if name == "V2":
            # A transaction of the second generation begins with 0: nobody writes so far. What is refused, is.
            yield Script(f"wrap, {name}", [*begin(), send("A", seq=start), send("A", seq=0), send("A", seq=LAST)])
            continue
        for n in (3, 4, 5, 6, 7):
            yield Script(
                f"wrap, {name}: {n} records over the end",
                [
                    *begin(),
                    send("A", seq=start, n=n),
                    send("A", n=2),
                    send("A", again=1),
                    send("A", again=2),
                    send("A", seq=0, n=1),
                    send("A", seq=LAST, n=1),
                    send("A", shift=LAST),
                    send("A"),
                    *close(),
                    describe_producers(),
                ],
            )


def _first_sequences():
    for version in (9, 10, 11, 12, 13):
        for first in (0, 1, 5, LAST):
            yield Script(
                f"first sequence {first}: Produce {version}",
                [
                    init("A"),
                    *([add("A")] if version < 12 else []),
                    produce("A", seq=first, version=version),
                    produce("A", seq=first, version=version),
                    produce("A", seq=first + 1 if first < LAST else 0, version=version),
                    produce("A", seq=0, version=version),
                    produce("A", seq=1, version=version),
                    end("A", version=5 if version >= 12 else 4),
                    *([add("A")] if version < 12 else []),
                    produce("A", seq=first, version=version),
                    produce("A", seq=0, version=version),
                    end("A", False, version=5 if version >= 12 else 4),
                ],
            )
    yield Script(
        "first sequence: lowest of those verified",
        [
            init("A"),
            write("A", seq=3),
            write("A", seq=2),
            write("A", seq=1),
            write("A", seq=2),
            write("A", seq=0),
            write("A", seq=1),
            done("A"),
            write("A", seq=2),
            write("A", seq=0, n=2),
            write("A", seq=2),
        ],
    )


def _epochs():
    for name, (begin, _, send, _) in GENERATIONS.items():
        for step in (1, 2, 40):
            for first in (0, 1, 3):
                txn = name != "idempotent"
                yield Script(
                    f"epoch, {name}: {step} higher with sequence {first}",
                    [
                        *begin(),
                        send("A"),
                        send("A", n=2),
                        alias("B", "A", epoch=step),
                        produce("B", seq=first, txn=False, version=11),
                        produce("B", seq=first, version=11),
                        send("A"),
                        send("A", again=1),
                        produce("B", seq=first + 1, txn=False),
                        *([end("A", version=4, settle=False), pause(150)] if txn else []),
                    ],
                )


def _after_markers():
    """Write after markers: after one of V1 the same epoch continues its sequences, a higher one restarts them."""
    for kind, version in (("1", 1), ("2", 2)):
        for epoch in (0, 1):
            row = marker("X", [0], generation=2 if version == 2 else 0)
            for first in (0, 2, 3, 5):
                yield Script(
                    f"after a marker {kind}, epoch {epoch:+}: sequence {first}",
                    [
                        foreign("A", 3, id=None),
                        produce("A"),
                        produce("A", n=2),
                        alias("X", "A", epoch=epoch),
                        write_markers([row], version=version),
                        produce("X", seq=first),
                        produce("A", seq=first),
                        produce("A", again=1),
                        produce("A", again=2),
                        produce("X", seq=0),
                    ],
                )
    for name, (begin, more, send, close) in GENERATIONS.items():
        if name == "idempotent":
            continue
        yield Script(
            f"after a marker, {name}: retries of what was sent before",
            [
                *begin(),
                *(send("A") for _ in range(6)),
                alias("Z", "A"),
                *close(),
                *(send("Z", again=k) for k in (1, 5, 6)),
                *more,
                send("A"),
                *(send("Z", again=k) for k in (1, 4, 5)),
                *(send("A", again=k) for k in (1, 2)),
                *close(),
                send("Z"),
                send("A", 1),
            ],
        )


def _batches():
    """Several batches in one request: of one partition that is refused, of two it depends on who sends them."""
    both = [init("A"), init("U", "u"), init("I", None), add("A", [0, 1]), add("U", [0, 1])]
    for version in (3, 9, 11):
        asked = {"version": version}
        yield Script(
            f"several batches: Produce {version}",
            [
                *both,
                produce_many([batch("A", 0, 0), batch("A", 0, 1)], id="t", **asked),
                produce_many([batch("A", 0, 0), batch("A", 1, 0)], id="t", **asked),
                produce_many([batch("A", 0, 1), batch("A", 1, 5)], id="t", **asked),
                produce_many([batch("A", 0, 2), batch("U", 1, 0)], id="t", **asked),
                produce_many([batch("A", 0, 2), batch("I", 1, 0, txn=False)], id="t", **asked),
                produce_many([batch("I", 0, 0, txn=False), batch("I", 1, 1, txn=False)], **asked),
                produce_many([batch("U", 0, 0)], id="t", **asked),
                produce_many([batch("U", 0, 1), batch("U", 1, 0)], id="u", **asked),
                produce_many([batch("A", 0, 3)], **asked),
                produce_many([batch("A", 0, 3)], id="", **asked),
                produce_many([batch("A", 0, 3), batch("A", 7, 0)], id="t", **asked),
                produce_many([batch("A", 7, 0)], id="t", **asked),
                fetch(0, 1),
                commit("A"),
                commit("U"),
            ],
        )
    yield Script(
        "several batches: Produce 12 adds two partitions",
        [
            init("A"),
            produce_many([batch("A", 0, 0), batch("A", 1, 2)], id="t", version=12),
            produce_many([batch("A", 1, 0), batch("A", 7, 0)], id="t", version=12),
            produce_many([batch("A", 1, 0)], id="t", version=12),
            done("A"),
            produce_many([batch("A", 0, 0), batch("A", 1, 0)], id="t", version=12),
            done("A", False),
        ],
    )
    yield Script(
        "several batches: two epochs of one producer",
        [
            init("A"),
            alias("X", "A", epoch=1),
            produce_many([batch("A", 0, 0), batch("X", 1, 0)], id="t", version=12),
            produce_many([batch("A", 0, 0), batch("X", 1, 0)], id="t", version=11),
            done("A", False),
        ],
    )
