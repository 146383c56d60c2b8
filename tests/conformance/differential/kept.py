"""Where Ottla answers otherwise than Kafka on purpose: script, why, and Ottla's answer by the number of the step.

Everything else in these scripts is as in Kafka. An entry that does not differ any more fails its test.
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

# What differs at one level only, or otherwise than at the others.
KEPT_AT: dict[int, dict[str, Kept]] = {0: {}, 1: {}, 2: {}}


def kept_at(level):
    """The differences at a `transaction.version`."""
    return KEPT | KEPT_AT[level]
