"""Arrow columns of transactions from the rows of a walk, for the view `transactions` and an audit's table. pure

-1 is an unknown or absent value and becomes null. Producer ids are always known.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.scan.compiled.kernels import Longs

    Columns = dict[str, Longs]

# By the number of the marker's type; the last one is for transactions without a marker.
FATES = ("aborted", "committed", "open")
_OPEN = 2
_OF_MARKERS = ("markerOffset", "markerPosition", "markerEpoch", "coordinatorEpoch", "endTime", "lastStableOffset")


class Place(NamedTuple):
    """Partition of the transactions, and the known transactional ids by producer id."""

    topic: str
    partition: int
    names: Mapping[int, str]


def columns_of_ended_rows(ended: "Longs", *, of_files: bool) -> "Columns":
    """Return columns from rows of the `ENDED_` columns. A marker without a transaction has a row without data.

    `of_files`: False for batches from brokers, which do not show their segments.
    """
    import numpy as np

    from ottla.scan import events

    columns = {
        "segment": events.ENDED_SEGMENT,
        "producerId": events.ENDED_PRODUCER_ID,
        "producerEpoch": events.ENDED_EPOCH,
        "fate": events.ENDED_FATE,
        "firstOffset": events.ENDED_FIRST_OFFSET,
        "lastOffset": events.ENDED_LAST_OFFSET,
        "markerOffset": events.ENDED_MARKER_OFFSET,
        "markerPosition": events.ENDED_POSITION,
        "markerEpoch": events.ENDED_MARKER_EPOCH,
        "coordinatorEpoch": events.ENDED_COORDINATOR_EPOCH,
        "records": events.ENDED_RECORDS,
        "batches": events.ENDED_BATCHES,
        "size": events.ENDED_BYTES,
        "startTime": events.ENDED_START_MS,
        "endTime": events.ENDED_END_MS,
        "lastStableOffset": events.ENDED_LAST_STABLE_OFFSET,
    }
    found = {name: ended[:, column] for name, column in columns.items()}
    if not of_files:
        found |= dict.fromkeys(("segment", "markerPosition"), np.full(len(ended), -1, dtype=np.int64))
    found["producerEpoch"] = np.where(found["firstOffset"] < 0, -1, found["producerEpoch"])
    return found


def of_open(rows: "Longs", segments: "Callable[[Longs], Longs]") -> "Columns":
    """Return columns from states with an open transaction. `segments` returns the segment of each first offset."""
    import numpy as np

    from ottla.scan import states

    columns = {
        "producerId": states.PRODUCER_ID,
        "producerEpoch": states.OPEN_EPOCH,
        "firstOffset": states.FIRST_OFFSET,
        "lastOffset": states.OPEN_LAST_OFFSET,
        "records": states.OPEN_RECORDS,
        "batches": states.OPEN_BATCHES,
        "size": states.OPEN_BYTES,
        "startTime": states.OPEN_START_MS,
    }
    found = {name: rows[:, column] for name, column in columns.items()}
    found["fate"] = np.full(len(rows), _OPEN, dtype=np.int64)
    found["segment"] = segments(found["firstOffset"])
    return found | {name: np.full(len(rows), -1, dtype=np.int64) for name in _OF_MARKERS}


def to_arrow(schema: "pa.Schema", place: Place, columns: "Columns") -> "pa.RecordBatch":
    """Return a record batch of the columns that `schema` names."""
    from ottla.scan.arrow import record_batch

    return record_batch(schema, {name: _column(place, columns, name) for name in schema.names})


def _column(place: Place, columns: "Columns", name: str) -> Any:
    import numpy as np
    import pyarrow as pa

    from ottla.scan.arrow import numbers, times

    rows = len(columns["firstOffset"])
    made: dict[str, Callable[[], Any]] = {
        "topic": lambda: pa.repeat(pa.scalar(place.topic, pa.string()), rows),
        "partition": lambda: np.full(rows, place.partition, dtype=np.int32),
        "fate": lambda: [FATES[fate] for fate in columns["fate"].tolist()],
        "transactionalId": lambda: [place.names.get(one) for one in columns["producerId"].tolist()],
        "durationMs": lambda: _durations(columns["startTime"], columns["endTime"]),
        "startTime": lambda: times(columns["startTime"]),
        "endTime": lambda: times(columns["endTime"]),
        "producerId": lambda: columns["producerId"],
    }
    return made[name]() if name in made else numbers(columns[name])


def _durations(starts: "Longs", ends: "Longs") -> Any:
    import pyarrow as pa

    return pa.array(ends - starts, pa.int64(), mask=(starts < 0) | (ends < 0))
