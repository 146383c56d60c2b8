"""Log lines on stderr, in Kafka's pattern or as JSON: how much of what, and never more than anybody can read. shell

What clients send stands in the lines. So a line is cut at `MOST_CHARACTERS`, none of its characters moves a cursor or
begins a line, and of one kind of line there are `MOST_LINES` in `WINDOW_S` seconds, `MOST_LINES_OF_ONE` for what one
address does; those left out are counted. The kind is the text of a line without the names in it. A logger at level
DEBUG writes all of its lines.

Who writes a line gives what goes into its text by name, and may give more: `log.info("Deleted topic %(topic)s",
{"topic": name})`. What of that is in `FIELDS` stands in a line of JSON as a field of its own.
"""

import json
import logging
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

from ottla.printable import printable

MOST_CHARACTERS: Final = 2_000
MOST_TRACEBACK_CHARACTERS: Final = 20_000
MOST_LINES: Final = 100
MOST_LINES_OF_ONE: Final = 50
MOST_FIELD_CHARACTERS: Final = 250
WINDOW_S: Final = 10.0
FIELDS: Final = (
    *("topic", "partition", "transactional_id", "producer_id", "producer_epoch", "group", "client_id", "peer", "api"),
    *("error", "principal", "operation"),
)
"""Fields of a line. All lines use these names, so that a search for a value finds every line about it."""
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
    """Formatter of log lines as JSON objects, one a line, with the time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _cut(record.getMessage(), MOST_CHARACTERS),
        }
        if isinstance(record.args, Mapping):
            line |= {name: _field(record.args[name]) for name in FIELDS if record.args.get(name) not in (None, "")}
        if record.exc_info:
            line["exception"] = _cut(self.formatException(record.exc_info), MOST_TRACEBACK_CHARACTERS)
        return json.dumps(line)


def _field(value: object) -> object:
    return value if isinstance(value, int) else _cut(str(value), MOST_FIELD_CHARACTERS)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} characters more)"


class BoundedHandler(logging.StreamHandler[TextIO]):
    """Writes lines, and counts those that there were too many of; the time is that of the lines themselves."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._since = 0.0
        self._written: Counter[Kind] = Counter()
        self._left_out: Counter[Kind] = Counter()
        self._of_one: Counter[tuple[Kind, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if not 0 <= record.created - self._since < WINDOW_S:  # the clock may be set back
            self._end_window(record.created)
        if record.levelno >= logging.INFO and not logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            kind = record.name, record.levelno, str(record.msg)
            if self._written[kind] >= MOST_LINES or self._is_too_much_of_one(kind, record):
                self._left_out[kind] += 1
                return
            self._written[kind] += 1
        super().emit(record)

    def close(self) -> None:
        self.acquire()
        try:
            self._end_window(self._since)
        finally:
            self.release()
        super().close()

    def _end_window(self, now: float) -> None:
        left_out, self._left_out, self._since = self._left_out, Counter(), now
        self._written.clear()
        self._of_one.clear()
        for (name, level, text), count in left_out.items():
            line = "%d more lines like this one within %d seconds: %s"
            super().emit(logging.LogRecord(name, level, "", 0, line, (count, WINDOW_S, text), None))

    def _is_too_much_of_one(self, kind: Kind, record: logging.LogRecord) -> bool:
        """Whether one address has had its part of the lines: what others do must be heard too."""
        peer = record.args.get("peer") if isinstance(record.args, Mapping) else None
        if not isinstance(peer, str):
            return False
        address = peer.rpartition(":")[0] or peer
        self._of_one[kind, address] += 1  # only for addresses with lines, so at most one entry per line
        return self._of_one[kind, address] > MOST_LINES_OF_ONE


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
