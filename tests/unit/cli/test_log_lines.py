"""Log lines: their format for any content, and the lines that are written or left out."""

import io
import json
import logging
import sys

import pytest
from click.testing import CliRunner

from ottla.broker.loggers import parse_levels
from ottla.cli import logs
from ottla.cli.logs import BoundedHandler, JsonFormatter, KafkaFormatter, log_to_stderr
from ottla.cli.main import main


def record(message, *values, level=logging.WARNING, at=1_000.0):
    made = logging.LogRecord("ottla.txn", level, "f", 1, message, values, None)
    made.created = at
    return made


def test_name_with_a_newline_stays_on_its_line():
    line = KafkaFormatter().format(record("Aborted %s", "a\nb\x1b[31m"))
    assert line.endswith("Aborted a\\x0ab\\x1b[31m (ottla.txn)") and "\n" not in line


@pytest.mark.parametrize("sent", ["\x85", "\x9b31m", "\u2028", "\u202e"], ids=ascii)
def test_no_other_character_moves_a_cursor(sent):
    line = KafkaFormatter().format(record("Aborted é%s", sent))
    assert line.isprintable() and "é" in line


def test_json_line_is_one_line():
    line = JsonFormatter().format(record("Aborted %s", "a\nb"))
    assert "\n" not in line and json.loads(line)["message"] == "Aborted a\nb"


def test_known_log_arguments_become_json_fields():
    given = {"topic": "ledger", "partition": 0, "transactional_id": "t" * 300, "group": None, "why": "so"}
    made = record("%(topic)s-%(partition)d broke: %(why)s", given)
    line = json.loads(JsonFormatter().format(made))
    assert line["message"] == "ledger-0 broke: so"
    assert (line["topic"], line["partition"]) == ("ledger", 0)
    assert line["transactional_id"].startswith("t" * 250 + "... (50 characters more)")
    assert not {"group", "why", "peer"} & line.keys()
    assert KafkaFormatter().format(made).endswith(" ledger-0 broke: so (ottla.txn)")


@pytest.mark.parametrize("formatter", [KafkaFormatter(), JsonFormatter()], ids=["text", "json"])
def test_a_line_is_cut(formatter):
    line = formatter.format(record("Aborted %s", "x" * 30_000))
    assert len(line) < logs.MOST_CHARACTERS + 200 and "... (28008 characters more)" in line


def test_no_line_of_a_traceback_begins_like_a_line_of_the_log():
    try:
        raise RuntimeError("group a\n[2026-11-21 12:00:00,123] ERROR forged\x1b[2J (ottla)")
    except RuntimeError:
        failed = logging.LogRecord("ottla", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    first, *more = KafkaFormatter().format(failed).split("\n")
    assert first.endswith("ERROR failed (ottla)")
    assert len(more) >= 4 and all(line.startswith("  ") and line.isprintable() for line in more)


@pytest.fixture
def bounded_handler():
    """A handler of bare messages, and what it wrote."""
    stream = io.StringIO()
    handler = BoundedHandler(stream)
    yield handler, lambda: stream.getvalue().splitlines()
    handler.close()


def test_lines_of_one_kind_are_counted_when_there_are_too_many(bounded_handler):
    handler, lines = bounded_handler
    for number in range(logs.MOST_LINES + 23):
        handler.handle(record("Refused %s", number))
    handler.handle(record("Another"))
    assert lines() == [*(f"Refused {number}" for number in range(logs.MOST_LINES)), "Another"]
    handler.handle(record("Refused %s", "later", at=1_000.0 + logs.WINDOW_S))
    assert lines()[-2:] == ["23 more lines like this one within 10 seconds: Refused %s", "Refused later"]


def test_one_address_does_not_silence_others(bounded_handler):
    handler, lines = bounded_handler
    for port in range(3 * logs.MOST_LINES):
        handler.handle(record("Refused %(peer)s", {"peer": f"10.0.0.1:{port}"}))
    handler.handle(record("Refused %(peer)s", {"peer": "10.0.0.2:1"}))
    assert len(lines()) == logs.MOST_LINES_OF_ONE + 1 and lines()[-1] == "Refused 10.0.0.2:1"
    handler.close()
    left_out = 3 * logs.MOST_LINES - logs.MOST_LINES_OF_ONE
    assert lines()[-1] == f"{left_out} more lines like this one within 10 seconds: Refused %(peer)s"


def test_suppressed_lines_are_counted_when_the_handler_closes(bounded_handler):
    handler, lines = bounded_handler
    for number in range(logs.MOST_LINES + 1):
        handler.handle(record("Refused %s", number))
    handler.close()
    assert lines()[-1] == "1 more lines like this one within 10 seconds: Refused %s"


def test_a_clock_that_is_set_back_silences_nothing(bounded_handler):
    handler, lines = bounded_handler
    for number in range(logs.MOST_LINES + 1):
        handler.handle(record("Refused %s", number))
    handler.handle(record("Refused %s", "earlier", at=5.0))
    assert lines()[-1] == "Refused earlier"


def test_debug_is_whole(bounded_handler):
    handler, lines = bounded_handler
    for number in range(3 * logs.MOST_LINES):
        handler.handle(record("Read %s", number, level=logging.DEBUG))
    assert len(lines()) == 3 * logs.MOST_LINES


def test_a_logger_at_debug_leaves_nothing_out(bounded_handler, caplog):
    handler, lines = bounded_handler
    caplog.set_level(logging.DEBUG, logger="ottla.txn")
    for number in range(3 * logs.MOST_LINES):
        handler.handle(record("Refused %s", number))
    assert len(lines()) == 3 * logs.MOST_LINES


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        ("INFO", {"": 20}),
        ("warn", {"": 30}),
        ("off,ottla=TRACE,asyncio=all", {"": 51, "ottla": 10, "asyncio": 10}),
        ("ottla.broker.group=DEBUG", {"": 20, "ottla.broker.group": 10}),
        (
            "ERROR, ottla.broker.txn.state_manager = Info,asyncio=debug",
            {"": 40, "ottla.broker.txn.state_manager": 20, "asyncio": 10},
        ),
    ],
)
def test_levels_are_those_of_the_named_loggers(given, levels):
    assert parse_levels(given) == levels


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("LOUD", "'LOUD' is not a level: DEBUG, INFO"),
        ("", "'' is not a level"),
        ("=DEBUG", "'=DEBUG' names no logger"),
        ("ottla.broker.gruop=DEBUG", "no logger ottla.broker.gruop; did you mean ottla.broker.group?"),
        ("ottla.xyzzy.a=DEBUG", "no logger ottla.xyzzy.a\n"),
    ],
)
def test_levels_that_are_none_are_refused(given, told):
    result = CliRunner().invoke(main, ["serve", "--log-level", given])
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_logger_uses_its_configured_level(capsys):
    root = logging.root
    handlers, level = root.handlers[:], root.level
    mine = logging.getLogger("ottla.broker.group")
    try:
        log_to_stderr("text", parse_levels("WARN,ottla.broker.group=DEBUG"))
        logging.getLogger("ottla.broker.group.coordinator").debug("heard")
        logging.getLogger("ottla.broker.txn.coordinator").info("not heard")
        logging.getLogger("ottla.broker.txn.coordinator").warning("heard too")
    finally:
        root.handlers[:], root.level = handlers, level
        mine.setLevel(logging.NOTSET)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == [
        "DEBUG heard (ottla.broker.group.coordinator)",
        "WARN heard too (ottla.broker.txn.coordinator)",
    ]
