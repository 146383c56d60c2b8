"""The options of a streaming read: the applicable ones of a batch read, and Spark's names for the others. pure"""

from typing import NamedTuple

from ottla.scan import schemas
from ottla.spark_jobs.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    OffsetsByPartition,
    OptionError,
    Options,
    offsets_by_partition,
    read_options,
)

EARLIEST, LATEST = "earliest", "latest"

_STARTING = "startingoffsets"
_TIME = "startingtimestamp"
_MOST = "maxoffsetspertrigger"
_BATCH_ONLY = {
    name.lower(): name for name in ("endingOffsets", "endingTimestamp", "producerIds", "history", "pushdown", "verify")
}
_OF_RECORDS = (_STARTING, _TIME, "failondataloss", "minpartitions", _MOST)
_FORM = 'earliest, latest or JSON such as {"ledger": {"0": 23, "1": -2, "2": -1}} (-2 is earliest, -1 latest)'


class StreamOptions(NamedTuple):
    """Options of a streaming read.

    `starting`: a word, a time in ms, or offsets by partition, with -2 and -1 for the words (all other partitions begin
    at the log start). `max_offsets`: None means no limit.
    """

    read: Options
    starting: str | int | OffsetsByPartition
    max_offsets: int | None


def named_for_streams(given: dict[str, str]) -> str:
    """Return the first option that only a stream has, or whose value only a stream accepts; empty without one."""
    lower = {name.lower(): value for name, value in given.items()}
    if _MOST in lower:
        return "maxOffsetsPerTrigger"
    starting = lower.get(_STARTING, EARLIEST).strip()
    if starting in (EARLIEST, LATEST):
        return "startingOffsets latest" if starting == LATEST else ""
    try:
        return "-1 in startingOffsets" if LATEST_OFFSET in _offsets(starting).values() else ""
    except OptionError:
        return ""


def stream_options(given: dict[str, str]) -> StreamOptions:
    """Check the options. Raises OptionError, with the possible values."""
    lower = {name.lower(): (name, value) for name, value in given.items()}
    view = lower.get("view", ("", schemas.RECORDS))[1]
    for key, (name, _) in lower.items():
        if key in _BATCH_ONLY:
            # Spark requests the schema of a batch read in the same way.
            stream = named_for_streams(given)
            why = f"{stream} is for spark.readStream: remove one" if stream else "a stream continues from its position"
            raise OptionError(f"option {_BATCH_ONLY[key]} is for spark.read{' and' if stream else ';'} {why}")
        if key in _OF_RECORDS and view == schemas.HANGING:
            raise OptionError(f"option {name} is for the view {schemas.RECORDS}; {view} shows what hangs now")
    starting = lower.get(_STARTING, ("", LATEST))[1].strip()
    read = read_options({name: value for key, (name, value) in lower.items() if key not in (_STARTING, _MOST)})
    if read.view not in (schemas.RECORDS, schemas.HANGING):
        raise OptionError(f"the view {read.view} is no stream; the views {schemas.RECORDS} and {schemas.HANGING} are")
    most = lower.get(_MOST, ("", ""))[1].strip()
    if most and not (most.isdigit() and int(most) > 0):
        raise OptionError(f"option maxOffsetsPerTrigger must be a number above 0, not {most!r}")
    begin: str | int | OffsetsByPartition = starting if starting in (EARLIEST, LATEST) else _offsets(starting)
    if read.starting_ms is not None:
        # As in Spark's Kafka source, the time has priority over the offsets.
        begin = read.starting_ms
    return StreamOptions(read, begin, int(most) if most else None)


def _offsets(text: str) -> OffsetsByPartition:
    return offsets_by_partition("startingOffsets", text, _FORM, (EARLIEST_OFFSET, LATEST_OFFSET))
