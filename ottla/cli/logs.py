"""Log lines on stderr, in Kafka's pattern or as JSON. shell"""

import json
import logging
import sys
from datetime import UTC, datetime

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


class KafkaFormatter(logging.Formatter):
    """`[2026-11-21 12:00:00,123] INFO message (logger)`, as Kafka's own log4j pattern has it."""

    def __init__(self) -> None:
        super().__init__("[%(asctime)s] %(levelname)s %(message)s (%(name)s)")

    def formatMessage(self, record: logging.LogRecord) -> str:
        # A client's names stand in messages: they must not be able to begin a line of their own.
        record.message = record.message.translate(_CONTROLS)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(log_format: str) -> None:
    """Send everything from INFO up to stderr; `log_format` is text or json."""
    logging.addLevelName(logging.WARNING, "WARN")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else KafkaFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
