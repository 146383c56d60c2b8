"""Options that decide what an audit finds, for `ottla audit` and the view `findings`, and their meaning. pure

The module imports little, as the options of the data source do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Final

from ottla.audit.checks.finding import CHECKS
from ottla.protocol.values import TopicPartition

# The defaults of Kafka.
TRANSACTIONAL_ID_EXPIRATION_MS: Final = 7 * 86_400_000
PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
_COPIES, _REPLICAS = "copies", "replicas"
# A smaller number is a date without dashes, or seconds: no broker has written anything before March 1973.
_FIRST_MS = 100_000_000_000
# The range of datetime from 1970: to the end of the year 9999.
_LAST_MS = 253_402_300_799_999


_SCALES: Final = {"K": 1_000, "M": 1_000_000, "G": 1_000_000_000}


class BadArgument(ValueError):
    """An argument that is not valid; the text is one line."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The options as they were given, by the names of the command line."""

    directories: tuple[str, ...]
    topics: str = ""
    checks: str = ""
    since: str = ""
    as_of: str = ""
    copies: tuple[str, ...] = ()
    transactional_id_expiration_ms: str = str(TRANSACTIONAL_ID_EXPIRATION_MS)
    producer_id_expiration_ms: str = str(PRODUCER_ID_EXPIRATION_MS)
    command_config: str = ""
    max_bytes_per_second: str = ""
    carry: str = ""


# The view `findings` reads no clusters, and each read covers the whole log.
_OF_THE_COMMAND = ("directories", "command_config", "max_bytes_per_second", "carry")
# Options of the view `findings`, with their defaults: `--as-of` is `as.of`. Pairs of `copies` are separated by `;`.
SPARK_OPTIONS: Final = {
    field.name.replace("_", "."): "" if field.name == _COPIES else str(field.default)
    for field in fields(Selection)
    if field.name not in _OF_THE_COMMAND
}


def selection_of(directories: tuple[str, ...], given: Mapping[str, str]) -> Selection:
    """Return the selection of a read of the view `findings`; `given` has all `SPARK_OPTIONS`."""
    texts = {name.replace(".", "_"): given[name] for name in SPARK_OPTIONS if name != _COPIES}
    pairs = tuple(one.strip() for one in given[_COPIES].split(";") if one.strip())
    return Selection(directories=directories, copies=pairs, **texts)


def parse_checks(given: str, *, has_copies: bool, directories: int = 1) -> tuple[str, ...]:
    """Return the names of checks in the order of reports, `copies` only with topics to compare. Raises BadArgument.

    `directories`: their number, 0 for a cluster. `replicas` needs several, and costs each replica's bytes of a cluster,
    which must be asked for.
    """
    names = _names_of_checks(given, "--checks")
    if _REPLICAS in names and directories == 1:
        raise BadArgument("--checks replicas: one directory has no other replica: name those of several brokers")
    if _COPIES in names and not has_copies:
        raise BadArgument("--checks copies: no topics to compare; name them with --copies INPUT=OUTPUT,key")
    if names and has_copies and _COPIES not in names:
        raise BadArgument(f"--copies: --checks leaves out the check {_COPIES}; add it there")
    left_out = {name for name, has in ((_COPIES, has_copies), (_REPLICAS, directories > 1)) if not has}
    return tuple(one for one in CHECKS if one in names or (not names and one not in left_out))


def parse_requirement(given: str) -> tuple[str, ...]:
    """Return the names of checks that must be made completely. Raises BadArgument."""
    names = _names_of_checks(given, "--require")
    return tuple(one for one in CHECKS if one in names)


def _names_of_checks(given: str, option: str) -> set[str]:
    names = {name.strip() for name in given.split(",") if name.strip()}
    if unknown := sorted(names - set(CHECKS)):
        raise BadArgument(f"{option}: no check {', '.join(unknown)}; the checks are {', '.join(CHECKS)}")
    return names


def parse_expiration_ms(given: str, option: str) -> int:
    """Parse a number of milliseconds above 0. Raises BadArgument."""
    if not _is_number(given) or int(given) == 0:
        raise BadArgument(f"{option}: {given}: not a number of milliseconds above 0")
    return int(given)


def parse_rate(given: str) -> int:
    """Parse bytes per second such as 500000, 500K or 20M; 0, no limit, for an empty text. Raises BadArgument."""
    if not given:
        return 0
    number, scale = (given[:-1], _SCALES[given[-1]]) if given[-1] in _SCALES else (given, 1)
    if not _is_number(number) or int(number) == 0:
        raise BadArgument(f"--max-bytes-per-second {given}: not a number of bytes such as 500000, 500K or 20M")
    return int(number) * scale


def parse_time_ms(given: str, option: str) -> int:
    """Parse milliseconds, or ISO 8601 (UTC without a time zone), to milliseconds. Raises BadArgument."""
    if _is_number(given):
        since_1970_ms = int(given)
        if since_1970_ms < _FIRST_MS:
            raise BadArgument(f"{option} {given}: too early for milliseconds since 1970; write it as ISO 8601")
    else:
        try:
            moment = datetime.fromisoformat(given)
        except ValueError as error:
            raise BadArgument(f"{option} {given}: neither ISO 8601 nor milliseconds") from error
        since_1970_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 <= since_1970_ms <= _LAST_MS:
        raise BadArgument(f"{option} {given}: not a time from 1970 to 9999")
    return since_1970_ms


def parse_as_of(given: str) -> tuple[int | None, dict[TopicPartition, int]]:
    """Parse `--as-of`: a time in ms, or offsets by topic and partition. Raises BadArgument."""
    fields = [one.strip().rsplit(":", 2) for one in given.split(",")]
    if not given:
        return None, {}
    if not _is_time(given) and all(len(one) == 3 and _is_number(one[1]) and _is_number(one[2]) for one in fields):
        return None, {(topic, int(partition)): int(offset) for topic, partition, offset in fields}
    if ":" in given and not _is_time(given):
        raise BadArgument(f"--as-of {given}: neither ISO 8601 nor TOPIC:PARTITION:OFFSET,...")
    return parse_time_ms(given, "--as-of"), {}


def _is_number(given: str) -> bool:
    return given.isascii() and given.isdigit()


def _is_time(given: str) -> bool:
    try:
        datetime.fromisoformat(given)
    except ValueError:
        return False
    return True
