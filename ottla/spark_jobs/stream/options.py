"""The options of a streaming read: those of a batch read that make sense, and Spark's names for the rest. pure"""

from typing import NamedTuple

from ottla.spark_jobs import schemas
from ottla.spark_jobs.options import OffsetsByPartition, OptionError, Options, read_options

EARLIEST, LATEST = "earliest", "latest"

_STARTING = "startingoffsets"
_LOSS = "failondataloss"
_MOST = "maxoffsetspertrigger"
_BATCH_ONLY = ("endingoffsets", "startingtimestamp", "endingtimestamp", "producerids", "history", "pushdown")


class StreamOptions(NamedTuple):
    """`starting`: a word, or offsets by partition (all others begin at the log start). None: no limit."""

    read: Options
    starting: str | OffsetsByPartition
    fail_on_data_loss: bool
    max_offsets: int | None


def names_stream(given: dict[str, str]) -> bool:
    """Whether there is an option that only a stream has."""
    lower = {name.lower(): value for name, value in given.items()}
    return _LOSS in lower or _MOST in lower or lower.get(_STARTING) == LATEST


def stream_options(given: dict[str, str]) -> StreamOptions:
    """Raises OptionError, which says what is possible."""
    lower = {name.lower(): (name, value) for name, value in given.items()}
    for key, (name, _) in lower.items():
        if key in _BATCH_ONLY:
            raise OptionError(f"option {name} is for spark.read; a stream reads on from where it stands")
    starting = lower.get(_STARTING, ("", LATEST))[1].strip()
    loss = lower.get(_LOSS, ("", "true"))[1].strip().lower()
    if loss not in ("true", "false"):
        raise OptionError(f"option failOnDataLoss is true or false, not {loss!r}")
    kept = {name: value for key, (name, value) in lower.items() if key not in (_STARTING, _LOSS, _MOST)}
    if starting not in (EARLIEST, LATEST):
        kept["startingOffsets"] = starting
    read = read_options(kept)
    if read.view not in (schemas.RECORDS, schemas.HANGING):
        raise OptionError(f"the {read.view} are no stream; the views {schemas.RECORDS} and {schemas.HANGING} are")
    most = lower.get(_MOST, ("", ""))[1].strip()
    if most and not (most.isdigit() and int(most) > 0):
        raise OptionError(f"option maxOffsetsPerTrigger is a number above 0, not {most!r}")
    return StreamOptions(
        read,
        starting if starting in (EARLIEST, LATEST) else read.starting_offsets or {},
        loss == "true",
        int(most) if most else None,
    )
