"""Log lines on stderr, in Kafka's pattern or as JSON, with limits on their length and number. shell

Lines contain text that clients send. So a line is cut at `MOST_CHARACTERS`, and none of its characters moves a cursor
or begins a line. In `WINDOW_S` seconds, at most `MOST_LINES` of one kind are written, and at most `MOST_LINES_OF_ONE`
about one address. The others are counted. The kind is the text of a line without the names in it. A logger at level
DEBUG writes all of its lines.

The caller passes the values of a line by name, and may pass more than the text uses: `log.info("Deleted topic
%(topic)s", {"topic": name})`. In JSON, the names in `FIELDS` are fields of the line.
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
    """Formatter with the log4j pattern of Kafka: `[2026-11-21 12:00:00,123] INFO message (logger)`."""

    def __init__(self) -> None:
        super().__init__("[%(asctime)s] %(levelname)s %(message)s (%(name)s)")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(_cut(record.message, MOST_CHARACTERS).translate(_LINE_ENDS))
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        """Indent the traceback: it may contain lines of a client, which must not pass for log lines."""
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
    """Handler that writes lines up to the limits, and counts the others. The time is that of the lines themselves."""

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
        """Return whether one address has used its part of the lines. The rest is for lines about other addresses."""
        peer = record.args.get("peer") if isinstance(record.args, Mapping) else None
        if not isinstance(peer, str):
            return False
        address = peer.rpartition(":")[0] or peer
        self._of_one[kind, address] += 1  # only for addresses with lines, so at most one entry per line
        return self._of_one[kind, address] > MOST_LINES_OF_ONE


def log_to_stderr(log_format: str, levels: Mapping[str, int] | None = None) -> None:
    """Send lines to stderr, from INFO up or at the levels of `parse_levels`. `log_format` is text or json."""
    levels = {"": logging.INFO} if levels is None else levels
    logging.addLevelName(logging.WARNING, "WARN")
    handler = BoundedHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else KafkaFormatter())
    logging.basicConfig(level=levels[""], handlers=[handler], force=True)
    for name, level in levels.items():
        if name:
            logging.getLogger(name).setLevel(level)
