"""The arguments of an audit: what may be said on the command line, and what it means. pure"""

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ottla.audit.checks.finding import CHECKS
from ottla.audit.outputs import DELTA, JSON, PARQUET

FORMATS = (PARQUET, JSON, DELTA)
_COPIES = "copies"
_DAY_MS = 86_400_000
# Fewer are a date without dashes, or seconds: no broker has written anything before March 1973.
_FIRST_MS = 100_000_000_000
# What datetime can show: 1970 to the end of the year 9999.
_LAST_MS = 253_402_300_799_999

_EPILOG = """\
Checks: %(checks)s.
Times: ISO 8601, UTC unless it says otherwise, or milliseconds since 1970.
Exit codes: 0 clean, 1 findings of the severity of --fail-on or worse, 2 could not run, 130 interrupted.
"""


class BadArgument(ValueError):
    """An argument that cannot be meant; the text is one line."""


class _Help(argparse.HelpFormatter):
    """Keeps the lines of the epilog."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(super(_Help, self)._fill_text(line, width, indent) for line in text.splitlines())


def parser() -> argparse.ArgumentParser:
    """The options; help says what each means."""
    made = argparse.ArgumentParser(
        prog="ottla audit",
        description="Was everything in the log directories of a broker written exactly once? They may be in use.",
        epilog=_EPILOG % {"checks": ", ".join(CHECKS)},
        formatter_class=_Help,
    )
    made.add_argument(
        "directories",
        metavar="DIR",
        nargs="+",
        help="log directory of Ottla or Apache Kafka, may be a URI such as s3://BUCKET/FOLDER; several: of one cluster",
    )
    what = made.add_argument_group("what is audited")
    what.add_argument("--checks", default="", metavar="NAMES", help="comma-separated; default: all")
    what.add_argument("--topics", default="", metavar="GLOBS", help="comma-separated, such as ledger,audit-*")
    what.add_argument("--since", default="", metavar="TIME", help="leave out segments that hold nothing later")
    what.add_argument(
        "--as-of",
        default="",
        metavar="TIME|OFFSETS",
        help="what a read_committed consumer would have seen then; a time, or offsets: ledger:0:898,ledger:1:12",
    )
    what.add_argument(
        "--copies",
        action="append",
        default=[],
        metavar="INPUT=OUTPUT,key|header:NAME",
        help="each committed record of topic INPUT has exactly one in OUTPUT, told by key or header",
    )
    for name, days in (("transactional", 7), ("producer", 1)):
        what.add_argument(
            f"--{name}-id-expiration-ms",
            type=_expiration_ms,
            default=days * _DAY_MS,
            metavar="MS",
            help=f"{name}.id.expiration.ms of the brokers; default: {days * _DAY_MS}, {days} d",
        )
    told = made.add_argument_group("what is told")
    told.add_argument("--format", choices=("text", "json"), default="text", help="json: one finding a line")
    told.add_argument("--all", action="store_true", help="show internal topics and what is no finding too")
    told.add_argument(
        "--fail-on", choices=("warning", "error"), default="warning", help="exit with 1 from here on; default: warning"
    )
    told.add_argument(
        "--report", metavar="FILE", help="write the audit there as one HTML file to look at; may be a URI"
    )
    told.add_argument(
        "--output", metavar="DIR", help="write the tables findings, transactions and partitions there; may be a URI"
    )
    told.add_argument(
        "--output-format", choices=FORMATS, help="of the tables; default: parquet; delta needs ottla[delta]"
    )
    told.add_argument("--overwrite", action="store_true", help="replace the tables of an earlier run in --output")
    made.add_argument(
        "--run-on",
        choices=("auto", "here", "spark"),
        default="auto",
        help="here: threads of this process; spark: a session; auto: here, but Spark under spark-submit",
    )
    return made


def checks(given: str, *, has_copies: bool) -> tuple[str, ...]:
    """The names in the order of reports, `copies` only with topics to compare. Raises BadArgument."""
    names = {name.strip() for name in given.split(",") if name.strip()}
    if unknown := sorted(names - set(CHECKS)):
        raise BadArgument(f"no check {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    if _COPIES in names and not has_copies:
        raise BadArgument("--checks copies: --copies INPUT=OUTPUT,key says which topics to compare")
    if names and has_copies and _COPIES not in names:
        raise BadArgument(f"--copies is for the check {_COPIES}, which --checks leaves out")
    return tuple(one for one in CHECKS if one in names or (not names and (one != _COPIES or has_copies)))


def output_format(arguments: argparse.Namespace) -> str:
    """The format of the tables. Raises BadArgument if there is nothing that it would be the format of."""
    for name, given in (("--output-format", arguments.output_format), ("--overwrite", arguments.overwrite)):
        if given and not arguments.output:
            raise BadArgument(f"{name} is for the tables that --output DIR writes; --format is that of what is printed")
    return str(arguments.output_format or PARQUET)


def time_ms(given: str, option: str) -> int:
    """Milliseconds from them, or from ISO 8601 (UTC unless it says otherwise). Raises BadArgument."""
    if _is_number(given):
        since_1970_ms = int(given)
        if since_1970_ms < _FIRST_MS:
            raise BadArgument(f"{option} {given}: too early for milliseconds since 1970; as ISO 8601 it is clear")
    else:
        try:
            moment = datetime.fromisoformat(given)
        except ValueError as error:
            raise BadArgument(f"{option} {given}: neither ISO 8601 nor milliseconds") from error
        since_1970_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 <= since_1970_ms <= _LAST_MS:
        raise BadArgument(f"{option} {given}: not a time from 1970 to 9999")
    return since_1970_ms


def as_of(given: str) -> tuple[int | None, dict[tuple[str, int], int]]:
    """(time in ms, None) or (None, offsets by topic and partition). Raises BadArgument."""
    fields = [one.strip().rsplit(":", 2) for one in given.split(",")]
    if not given:
        return None, {}
    if not _is_time(given) and all(len(one) == 3 and _is_number(one[1]) and _is_number(one[2]) for one in fields):
        return None, {(topic, int(partition)): int(offset) for topic, partition, offset in fields}
    if ":" in given and not _is_time(given):
        raise BadArgument(f"--as-of {given}: neither ISO 8601 nor TOPIC:PARTITION:OFFSET,...")
    return time_ms(given, "--as-of"), {}


def ahead(as_of_ms: int | None, since_ms: int | None, now_ms: int) -> list[str]:
    """What is to be told of times that have not come: the answer is another one than it may seem."""
    told = []
    if as_of_ms is not None and as_of_ms > now_ms:
        told.append("--as-of is in the future: ages are those of then, all else is what the files hold now")
    if since_ms is not None and since_ms > now_ms:
        told.append("--since is in the future: what is read is what cannot be left out")
    return told


def beyond(until_offsets: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]) -> list[str]:
    """What is to be told of offsets of `--as-of` where no log has come; `ends`: where those that were read end."""
    return [
        f"--as-of names offset {offset:,} of {topic}:{partition}, which ends at {end:,}: that is what was read"
        for (topic, partition), offset in until_offsets.items()
        if offset > (end := ends.get((topic, partition), offset))
    ]


def _is_number(given: str) -> bool:
    return given.isascii() and given.isdigit()


def _is_time(given: str) -> bool:
    try:
        datetime.fromisoformat(given)
    except ValueError:
        return False
    return True


def _expiration_ms(given: str) -> int:
    if not _is_number(given) or int(given) == 0:
        raise argparse.ArgumentTypeError(f"{given}: not a number of milliseconds above 0")
    return int(given)


def directories(given: Sequence[str]) -> tuple[str, ...]:
    """Each once, in the order given."""
    return tuple(dict.fromkeys(given))
