"""What a log line looks like, whatever stands in it."""

import json
import logging

from ottla.cli.logs import JsonFormatter, KafkaFormatter


def record(message, *values):
    return logging.LogRecord("ottla.txn", logging.WARNING, "f", 1, message, values, None)


def test_name_with_a_newline_stays_on_its_line():
    line = KafkaFormatter().format(record("Aborted %s", "a\nb\x1b[31m"))
    assert line.endswith("Aborted a\\x0ab\\x1b[31m (ottla.txn)") and "\n" not in line


def test_json_line_is_one_line():
    line = JsonFormatter().format(record("Aborted %s", "a\nb"))
    assert "\n" not in line and json.loads(line)["message"] == "Aborted a\nb"
