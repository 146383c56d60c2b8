"""Intended differences of Ottla's answers from Kafka's: script, reason, and Ottla's answer by the number of the step.

All other answers in these scripts are the same as Kafka's. An entry without a difference fails its test.
"""

from typing import NamedTuple


class Kept(NamedTuple):
    reason: str
    answers: dict


_REFUSED = ["INVALID_RECORD", -1, -1, 0]
_FIRST_BATCH = {
    "error": "NONE",
    "ends": [5, 5, 0],
    "aborted": [["P0", 0]],
    "log": [[0, 0, "P0", 0, 0, 16, 0, ["A0+0"]]],
}

KEPT = {
    "epoch: -1": Kept(
        "Kafka appends a batch that has a producer id and no epoch, and every batch of that producer after it, "
        "whatever its sequence. No client means that.",
        {1: _REFUSED, 2: _REFUSED},
    ),
    "epoch: a transactional batch of nobody": Kept(
        "Kafka appends a transactional batch without a producer id: no marker can ever end it, and a read_committed "
        "consumer sees it at once.",
        {0: _REFUSED},
    ),
    "sequence, transactional: -1": Kept(
        "Kafka begins to verify a batch before it looks at its sequence, and then takes every sequence above the "
        "negative one for a batch that has overtaken it. Ottla refuses the broken batch and keeps nothing of it.",
        {4: ["NONE", 0, -1, 0]},
    ),
    "marker: several producers in one request": Kept(
        "Kafka never answers a WriteTxnMarkers request whose last marker has no partition that exists while another "
        "marker has one.",
        {
            4: [
                ["X1000", [[0, "NONE"], [0, "UNKNOWN_TOPIC_OR_PARTITION"], [1, "NONE"]]],
                ["X2000", [[0, "NONE"], [7, "UNKNOWN_TOPIC_OR_PARTITION"]]],
            ]
        },
    ),
    "marker: the same partition twice": Kept(
        "Kafka writes one marker and never answers: it waits for two.",
        {1: [["X0", [[0, "NONE"]]]]},
    ),
    "marker: of nobody, for an unknown partition too": Kept(
        "An exception of Kafka's makes every row an UNKNOWN_SERVER_ERROR, Ottla answers each for itself.",
        {2: [["X0", [[0, "UNKNOWN_SERVER_ERROR"], [9, "UNKNOWN_TOPIC_OR_PARTITION"]]]]},
    ),
    "fetch: the first batch": Kept(
        "Where the fetched bytes end at the first entry of the offset index, Kafka's search takes the second, and the "
        "aborted list names one transaction more than concerns them. It may: consumers look at offsets.",
        {12: _FIRST_BATCH},
    ),
    "fetch: a cut through a batch": Kept(
        "Kafka sends the beginning of a batch that the size limit cuts, and lists the aborted transactions of its "
        "offsets too. Ottla sends whole batches.",
        {12: _FIRST_BATCH},
    ),
}

_REFUSED_MARKER = (
    "A partition refuses the transaction's marker. Kafka gives the transaction up: it stays prepared and the id busy. "
    "Ottla leaves the partition out and completes (docs/decisions/marker-phase.md)."
)
_NOT_UTF8 = (
    "Kafka reads strings that are not UTF-8 with replacement characters, under which two ids become one. Ottla closes "
    "the connection, as after any bytes that break the protocol."
)
_NO_PATTERN = ["INVALID_REGULAR_EXPRESSION", [], []]
_LARGE_PATTERN = (
    "A long pattern, or one that counts to more than 1,000, would hold up the other clients of a broker that is one "
    "process."
)


def _complete(outcome, first_step, generation):
    """Ottla's answers where Kafka's transaction stays prepared: what is described, a new instance, what is logged."""
    epoch = 1 if generation == 2 else 0
    ends = ["clock", "P0", -1, generation]
    begun = [["0"], ["0", "1"]] if generation == 2 else [["0", "1"]]
    return {
        first_step: [["NONE", f"Complete{outcome}", 60000, "clock", "P0", epoch, []]],
        first_step + 2: ["NONE", "P0", epoch + 1],
        first_step + 3: [
            [1, "P0", 0, "Empty", 60000, None, -1, "P0", -1, 0],
            *([1, "P0", 0, "Ongoing", 60000, partitions, *ends] for partitions in begun),
            [1, "P0", epoch, f"Prepare{outcome}", 60000, ["0", "1"], *ends],
            [1, "P0", epoch, f"Complete{outcome}", 60000, [], *ends],
            [1, "P0", epoch + 1, "Empty", 60000, None, -1, "P0", -1, generation],
        ],
    }


# Scripts of the levels at which both generations are spoken.
_OF_BOTH_GENERATIONS = {
    "marker refused: V1 commit": Kept(_REFUSED_MARKER, _complete("Commit", 8, 0)),
    "marker refused: V1 abort": Kept(_REFUSED_MARKER, _complete("Abort", 8, 0)),
    "marker refused: V2 commit": Kept(_REFUSED_MARKER, _complete("Commit", 7, 2)),
    "marker refused: V2 abort": Kept(_REFUSED_MARKER, _complete("Abort", 7, 2)),
    "not UTF-8: every request": Kept(
        _NOT_UTF8, dict.fromkeys((*range(1, 7), *range(8, 67, 2), *range(67, 72)), "closed")
    ),
    "not UTF-8: a whole transaction": Kept(
        _NOT_UTF8,
        dict.fromkeys((0, 4, 6, 8, 9), "closed")
        | {
            1: [[0, "INVALID_PRODUCER_ID_MAPPING"]],
            2: _REFUSED,
            3: ["INVALID_PRODUCER_ID_MAPPING"],
            5: ["NONE", [], []],
            7: ["INVALID_PRODUCER_ID_MAPPING", -1, -1],
        },
    ),
    "v2 brokers: one transactional id twice": Kept(
        "Where a broker names a transactional id twice in a request, Kafka takes the last row's partitions for both.",
        {2: [["NONE", "Ongoing", 60000, "clock", "P0", 0, ["0", "1"]]]},
    ),
    "patterns alone, from 0": Kept(_LARGE_PATTERN, {31: _NO_PATTERN}),
    "patterns after the prefix, from 0": Kept(_LARGE_PATTERN, {31: _NO_PATTERN}),
    "patterns: deep": Kept(_LARGE_PATTERN, dict.fromkeys(range(17, 20), _NO_PATTERN)),
    "patterns: long": Kept(_LARGE_PATTERN, {18: _NO_PATTERN, 22: _NO_PATTERN}),
}
# What differs at one level only, or otherwise than at the others.
KEPT_AT: dict[int, dict[str, Kept]] = {
    0: {},
    1: _OF_BOTH_GENERATIONS,
    2: _OF_BOTH_GENERATIONS
    | {
        "level 2 to 0: the transaction of V2 cannot end": Kept(
            "EndTxn 5 cannot be logged at level 0. Kafka leaves the transactional id busy for good, Ottla as it was "
            "(docs/decisions/transactions-v2.md).",
            {6: ["PRODUCER_FENCED"]},
        ),
    },
}


def kept_at(level):
    """The differences at a `transaction.version`; none in another setting."""
    return KEPT | KEPT_AT[level] if level in KEPT_AT else {}


_REUSED = ["UNKNOWN_PRODUCER_ID", -1, -1, 0]
REUSED_AT_LEVEL_2 = {
    # Script -> the steps whose answers `transaction.sequence.reuse.refuse` changes: for Kafka the batch is
    # a duplicate of one whose transaction has ended, or out of order where the counts differ (docs/in-the-log.md).
    "sequence: goes on over transactions": dict.fromkeys((6, 7, 8), _REUSED),
    "after a marker, V1: retries of what was sent before": dict.fromkeys(range(14, 20), _REUSED),
    "first sequence 0: Produce 9": dict.fromkeys((9, 10), _REUSED),
    "first sequence 5: Produce 9": dict.fromkeys((9, 10), _REUSED),
    "marker 1: begun by V1, epoch +0": dict.fromkeys((11, 14), _REUSED),
    "marker 2 of 0: ended by V2, epoch +0": {13: _REUSED},
    # A zombie that was given its successor's epoch (docs/decisions/differences.md).
    "zombie: commit 5 on a successor in CompleteCommit": {12: _REUSED},
    "zombie: abort 5 on a successor in two transactions": dict.fromkeys((15, 16), _REUSED),
    "zombie: goes on with the epoch that it was given": {10: _REUSED},
}
