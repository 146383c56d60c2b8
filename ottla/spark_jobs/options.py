"""The options of one read: their names, defaults and values. pure

The module imports little, as `source.py` does. Options that Spark's Kafka source has too have its names and meanings.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from ottla.audit.selection import SPARK_OPTIONS
from ottla.printable import printable
from ottla.protocol.values import TopicPartition
from ottla.scan import schemas
from ottla.scan.damage_log import FAIL, MODES
from ottla.spark_jobs.kafka_options import instead_of, is_met
from ottla.suggestion import did_you_mean, nearest_name
from ottla.wire import is_kafka_address

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
# The end of a read of a replica, named as in Kafka's FetchIsolation; its third value is read_committed.
LOG_END, HIGH_WATERMARK = "log_end", "high_watermark"
_FLAGS = ("false", "true")

# Option -> (default, values; none means any).
OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "isolation.level": (READ_COMMITTED, (READ_COMMITTED, READ_UNCOMMITTED)),
    "on.damage": (FAIL, MODES),
    "topics": ("", ()),
    "view": (schemas.RECORDS, tuple(schemas.VIEWS)),
    "partitions": ("", ()),
    "startingOffsets": ("earliest", ()),
    "endingOffsets": ("latest", ()),
    "startingTimestamp": ("", ()),
    "endingTimestamp": ("", ()),
    "producerIds": ("", ()),
    "history": ("false", _FLAGS),
    "verify": ("false", _FLAGS),
    "pushdown": ("false", _FLAGS),
    "failOnDataLoss": ("true", ()),
    "minPartitions": ("", ()),
    "fetchIsolation": (LOG_END, (LOG_END, HIGH_WATERMARK)),
    "command.config": ("", ()),
    **{name: (default, ()) for name, default in SPARK_OPTIONS.items()},
}
_CANONICAL = {name.lower(): name for name in OPTIONS}
# Features that are not options, and how to use them.
_ELSEWHERE = {"cache": "ottla.spark_jobs.cached(spark, DIR, CACHE) reads a log from a cache"}
# Options that Spark itself adds.
_SPARKS_OPTIONS = ("path", "paths", "serialization.format")

# The views that accept an option; the other views refuse it.
_BOUNDED = {
    "startingOffsets": (schemas.RECORDS, schemas.BATCHES, schemas.SEGMENTS),
    "endingOffsets": (schemas.RECORDS, schemas.BATCHES, schemas.SEGMENTS),
    "startingTimestamp": (schemas.RECORDS, schemas.BATCHES, schemas.SEGMENTS),
    "endingTimestamp": (schemas.RECORDS, schemas.BATCHES, schemas.SEGMENTS),
    "producerIds": (schemas.RECORDS, schemas.BATCHES),
    "history": (schemas.TRANSACTION_STATE, schemas.GROUP_OFFSETS),
    "failOnDataLoss": (schemas.RECORDS, schemas.BATCHES, schemas.SEGMENTS),
    "minPartitions": (schemas.RECORDS, schemas.BATCHES, schemas.DAMAGE),
    "fetchIsolation": (schemas.RECORDS, schemas.BATCHES),
    "partitions": tuple(view for view in schemas.VIEWS if view != schemas.FINDINGS),
    **{name: (schemas.FINDINGS,) for name in SPARK_OPTIONS if name != "topics"},
}
EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
_NO_PATH = (
    "the ottla source needs a log directory: .load(DIR), or OPTIONS (path 'DIR') in SQL, where CREATE TABLE names no "
    "columns (else Spark loses the options of the table)"
)

OffsetsByPartition = dict[TopicPartition, int]


LOSS_HINT = 'option("failOnDataLoss", "false") continues with the offsets that are there'


class DataLost(Exception):
    """Requested offsets are gone; the text has the offsets and the remedy."""


class OptionError(ValueError):
    """An option that does not exist, or a value that it cannot have."""


class Options(NamedTuple):
    """The options of one read, checked. Offsets and times: None without a bound; times in ms.

    `command_config`: the path of the properties of a Java client, for a cluster.
    `audited`: the texts of the options of the view `findings`, which its reader checks.
    """

    paths: tuple[str, ...]
    view: str = schemas.RECORDS
    isolation_level: str = READ_COMMITTED
    on_damage: str = FAIL
    topics: str = ""
    partitions: tuple[int, ...] | None = None
    starting_offsets: OffsetsByPartition | None = None
    ending_offsets: OffsetsByPartition | None = None
    starting_ms: int | None = None
    ending_ms: int | None = None
    producer_ids: tuple[int, ...] | None = None
    history: bool = False
    verify: bool = False
    pushdown: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int = 1
    fetch_isolation: str = LOG_END
    command_config: str = ""
    audited: Mapping[str, str] = SPARK_OPTIONS


def option_texts(path: str | Sequence[str], options: dict[str, str | int]) -> dict[str, str]:
    """Return the options as Spark passes them, with those for one path or several. True is `true`."""
    where = {"path": path} if isinstance(path, str) else {"paths": json.dumps(list(path))}
    given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return where | given


def read_options(given: dict[str, str]) -> Options:
    """Check the options. Raises OptionError, with the possible values, for an invalid option."""
    values = {name: default for name, (default, _) in OPTIONS.items()}
    for name, value in given.items():
        key = _CANONICAL.get(name.lower(), name.lower())
        if key not in OPTIONS and key not in _SPARKS_OPTIONS:
            if is_met(name, value):
                continue
            instead = _ELSEWHERE.get(key) or instead_of(name) or did_you_mean(name, OPTIONS)
            raise OptionError(f"the ottla source has no option {name!r}; {instead}")
        values[key] = value.strip() if key in OPTIONS else value
        _check_value(key, value)
    for name, views in _BOUNDED.items():
        if values[name] != OPTIONS[name][0] and values["view"] not in views:
            which = f"view{'s' if len(views) > 1 else ''} {' and '.join(views)}"
            raise OptionError(f"option {name} is for the {which}, not {values['view']}")
    return Options(
        paths=_paths(values),
        view=values["view"],
        isolation_level=values["isolation.level"],
        on_damage=values["on.damage"],
        topics=values["topics"],
        partitions=_integers("partitions", values["partitions"]),
        starting_offsets=_offsets("startingOffsets", values["startingOffsets"], EARLIEST_OFFSET),
        ending_offsets=_offsets("endingOffsets", values["endingOffsets"], LATEST_OFFSET),
        starting_ms=_milliseconds("startingTimestamp", values["startingTimestamp"]),
        ending_ms=_milliseconds("endingTimestamp", values["endingTimestamp"]),
        producer_ids=_integers("producerIds", values["producerIds"]),
        history=values["history"] == "true",
        verify=values["verify"] == "true",
        pushdown=values["pushdown"] == "true",
        fail_on_data_loss=_is_true("failOnDataLoss", values["failOnDataLoss"]),
        fetch_isolation=values["fetchIsolation"],
        command_config=_command_config(values),
        min_partitions=_above_zero("minPartitions", values["minPartitions"]) or 1,
        audited={name: values[name] for name in SPARK_OPTIONS},
    )


def _check_value(key: str, value: str) -> None:
    allowed = OPTIONS[key][1] if key in OPTIONS else ()
    if not allowed or value in allowed:
        return
    if near := nearest_name(value, allowed):
        raise OptionError(f"option {key} is {value!r}; did you mean {near}?")
    raise OptionError(f"option {key} must be one of {', '.join(allowed)}, not {value!r}")


def _command_config(values: dict[str, str]) -> str:
    """Return the path for the tasks, absolute: they may run in another folder. Only the path is sent to them."""
    given = values["command.config"]
    paths = _paths(values)
    if not any(map(is_kafka_address, paths)):
        if given:
            raise OptionError("option command.config is for clusters: load one, such as kafka://HOST:PORT")
        return ""
    if len(paths) > 1:
        raise OptionError("one cluster is read, or directories of one cluster: load one kafka:// address alone")
    if values["view"] == schemas.SEGMENTS:
        raise OptionError(f"the view {schemas.SEGMENTS} shows files, which brokers do not send: load a log directory")
    return str(Path(given).absolute()) if given else ""


def _paths(values: dict[str, str]) -> tuple[str, ...]:
    """Return the log directories, or the address of a cluster.

    Several come as JSON in `paths` (`DataSourceV2Utils.getOptionsWithPaths`).
    """
    if "paths" not in values:
        if not values.get("path"):
            raise OptionError(_NO_PATH)
        return (values["path"],)
    if "path" in values:
        raise OptionError(f"load() names log directories, and option path names {values['path']}: remove one of them")
    try:
        paths: Any = json.loads(values["paths"])
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) and path for path in paths):
        raise OptionError(f'option paths must be JSON such as ["/disk1/kafka", "/disk2"], not {values["paths"]!r}')
    return tuple(dict.fromkeys(paths))


def check_utf8(paths: tuple[str, ...]) -> None:
    """Raise OptionError for a path that is not UTF-8: Spark waits forever for a task whose error contains one."""
    for path in paths:
        name = unquote(path, errors="surrogateescape") if path.startswith("file:") else path
        if any(map(_is_surrogate, name)):
            raise OptionError(f"{printable(path)}: the path is not UTF-8, which Spark needs; name a link to it (ln -s)")


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


def _integers(name: str, text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise OptionError(f"option {name} must be a comma-separated list of numbers, not {text!r}") from None


def _is_true(name: str, text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise OptionError(f"option {name} must be true or false, not {text!r}")
    return text.lower() == "true"


def _above_zero(name: str, text: str) -> int | None:
    if text and not (text.isdecimal() and int(text) > 0):
        raise OptionError(f"option {name} must be a number above 0, not {text!r}")
    return int(text) if text else None


def _milliseconds(name: str, text: str) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"option {name} must be a time in ms since 1970, not {text!r}") from None


def _offsets(name: str, text: str, unbounded: int) -> OffsetsByPartition | None:
    """Parse `{"topic": {"0": 23}}`. The word, or -2 (-1 at the end) for a partition, means no bound."""
    word = "earliest" if unbounded == EARLIEST_OFFSET else "latest"
    if text == word:
        return None
    form = f'{word} or JSON such as {{"ledger": {{"0": 23, "1": {unbounded}}}}} ({unbounded} is {word})'
    offsets = offsets_by_partition(name, text, form, (unbounded,))
    return {place: offset for place, offset in offsets.items() if offset != unbounded}


def offsets_by_partition(name: str, text: str, form: str, words: tuple[int, ...]) -> OffsetsByPartition:
    """Return the offsets in the JSON of an option; `words` are the negative ones with a meaning. Raises OptionError."""
    wrong = OptionError(f"option {name} must be {form}, not {text!r}")
    try:
        given: Any = json.loads(text)
        offsets = {
            (topic, int(partition)): offset
            for topic, by_partition in given.items()
            for partition, offset in by_partition.items()
        }
    except (ValueError, AttributeError):
        raise wrong from None
    if not all(type(offset) is int and (offset >= 0 or offset in words) for offset in offsets.values()):
        raise wrong
    return offsets


def check_places(options: "Options", names: set[TopicPartition]) -> None:
    """Refuse offsets for a partition that is not read. Raises OptionError."""
    for name, given in (("startingOffsets", options.starting_offsets), ("endingOffsets", options.ending_offsets)):
        check_partitions(name, given or {}, names)


def check_partitions(option: str, given: OffsetsByPartition, names: set[TopicPartition]) -> None:
    """Raise OptionError if `given` names a partition that is not in `names`, the partitions to read."""
    unknown = sorted(given.keys() - names)
    if unknown:
        some = ", ".join(f"{topic}-{partition}" for topic, partition in unknown[:5])
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        there = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(names)[:5]) or "none"
        raise OptionError(
            f"option {option} names {some}{more}, which is not among the {len(names)} partitions that are read ({there}"
            f"{', ...' if len(names) > 5 else ''})"
        )
