"""Log lines on stderr, in Kafka's pattern or as JSON: how much of what, and never more than anybody can read. shell

What clients send stands in the lines. So a line is cut at `MOST_CHARACTERS`, none of its characters moves a cursor or
begins a line, and of one kind of line there are `MOST_LINES` in `WINDOW_S` seconds; those left out are counted. Kinds
are told apart by their text without the names in it. Whoever asks for DEBUG of a logger gets all of its lines.
"""

import json
import logging
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Final, TextIO

from ottla.cli.printable import printable

MOST_CHARACTERS: Final = 2_000
MOST_TRACEBACK_CHARACTERS: Final = 20_000
MOST_LINES: Final = 100
WINDOW_S: Final = 10.0
LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    # What else log4j has.
    "TRACE": logging.DEBUG,
    "ALL": logging.DEBUG,
    "OFF": logging.CRITICAL + 1,
}
_LINE_ENDS: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}

Kind = tuple[str, int, str]


class KafkaFormatter(logging.Formatter):
    """`[2026-11-21 12:00:00,123] INFO message (logger)`, as Kafka's own log4j pattern has it."""

    def __init__(self) -> None:
        super().__init__("[%(asctime)s] %(levelname)s %(message)s (%(name)s)")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(_cut(record.message, MOST_CHARACTERS).translate(_LINE_ENDS))
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        """Indented: the text of an exception may have lines of a client's, which must not look like ours."""
        text = _cut(super().formatException(ei), MOST_TRACEBACK_CHARACTERS)  # type: ignore[arg-type]
        return "\n".join(f"  {printable(line)}" for line in text.splitlines())


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _cut(record.getMessage(), MOST_CHARACTERS),
        }
        if record.exc_info:
            line["exception"] = _cut(self.formatException(record.exc_info), MOST_TRACEBACK_CHARACTERS)
        return json.dumps(line)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} characters more)"


class BoundedHandler(logging.StreamHandler[TextIO]):
    """Writes lines, and counts those that there were too many of; the time is that of the lines themselves."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._since = 0.0
        self._counts: Counter[Kind] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if not 0 <= record.created - self._since < WINDOW_S:  # the clock may be set back
            self._end_window(record.created)
        if record.levelno >= logging.INFO and not logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            kind = record.name, record.levelno, str(record.msg)
            self._counts[kind] += 1
            if self._counts[kind] > MOST_LINES:
                return
        super().emit(record)

    def close(self) -> None:
        self.acquire()
        try:
            self._end_window(self._since)
        finally:
            self.release()
        super().close()

    def _end_window(self, now: float) -> None:
        counts, self._counts, self._since = self._counts, Counter(), now
        for (name, level, text), count in counts.items():
            if count > MOST_LINES:
                line = "%d more lines like this one within %d seconds: %s"
                super().emit(logging.LogRecord(name, level, "", 0, line, (count - MOST_LINES, WINDOW_S, text), None))


def parse_levels(given: str) -> dict[str, int]:
    """`INFO,ottla.broker.group=DEBUG` as levels by logger, "" being all others; ValueError says what is wrong."""
    levels = {"": logging.INFO}
    for part in given.split(","):
        name, equals, level = (each.strip() for each in part.rpartition("="))
        number = LEVELS.get(level.upper())
        if number is None:
            raise ValueError(f"{level or part!r} is not a level: {', '.join(LEVELS)}")
        if equals and not name:
            raise ValueError(f"{part!r} names no logger")
        _check_logger(name)
        levels[name] = number
    return levels


def _check_logger(name: str) -> None:
    """Loggers are named by modules. What is not ours may have any name."""
    if name.partition(".")[0] != "ottla":
        return
    known = "ottla"
    for part in name.split(".")[1:]:
        package = find_spec(known)
        if package is None or find_spec(f"{known}.{part}") is None:
            near = get_close_matches(part, _modules_in(known), 1)
            hint = f"; did you mean {known}.{near[0]}?" if near else ""
            raise ValueError(f"there is no logger {name}{hint}")
        known = f"{known}.{part}"


def _modules_in(package: str) -> list[str]:
    from pkgutil import iter_modules  # for who mistyped

    found = find_spec(package)
    return [each.name for each in iter_modules(found.submodule_search_locations)] if found is not None else []


def log_to_stderr(log_format: str, levels: Mapping[str, int] | None = None) -> None:
    """Send lines to stderr, from INFO up or as `parse_levels` says; `log_format` is text or json."""
    levels = {"": logging.INFO} if levels is None else levels
    logging.addLevelName(logging.WARNING, "WARN")
    handler = BoundedHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else KafkaFormatter())
    logging.basicConfig(level=levels[""], handlers=[handler], force=True)
    for name, level in levels.items():
        if name:
            logging.getLogger(name).setLevel(level)
