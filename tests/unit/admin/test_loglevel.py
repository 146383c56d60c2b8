"""Levels of loggers that are changed for some minutes and then restored."""

import logging

import pytest

from ottla.admin.loglevel import LogLevels
from ottla.admin.routes import Router
from tests.unit.admin.web import Web

GROUP = "ottla.broker.group"
PATH = f"/v1/loglevel/{GROUP}"


@pytest.fixture
def web():
    before = {name: logging.getLogger(name).level for name in (None, GROUP)}
    web = Web()
    web.router = Router(LogLevels(web.broker.clock).routes)
    yield web
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def level(name=GROUP):
    return logging.getLogger(name).level


def test_a_temporary_level_is_restored_after_its_time(web):
    logging.getLogger(GROUP).setLevel(logging.WARNING)
    reply = web.ask("PUT", PATH, body={"level": "DEBUG", "for_ms": 60_000})
    now_ms = web.broker.clock.now_ms()
    assert reply.value == {"logger": GROUP, "level": "DEBUG", "until_ms": now_ms + 60_000, "then": "WARN"}
    assert level() == logging.DEBUG
    web.broker.advance(59_000)
    assert level() == logging.DEBUG
    web.broker.advance(2_000)
    assert level() == logging.WARNING
    assert {"logger": GROUP, "level": "WARN", "until_ms": None, "then": None} in web.ask("GET", "/v1/loglevel").value


def test_a_second_temporary_level_reverts_to_the_permanent_one(web):
    web.ask("PUT", PATH, body={"level": "DEBUG", "for_ms": 1_000})
    again = web.ask("PUT", PATH, body={"level": "ERROR", "for_ms": 60_000})
    assert again.value["then"] is None  # that of its parent
    web.broker.advance(2_000)
    assert level() == logging.ERROR
    web.broker.advance(60_000)
    assert level() == logging.NOTSET


def test_a_level_can_be_given_back_at_once(web):
    before = level(None)
    web.ask("PUT", "/v1/loglevel/root", body={"level": "OFF"})
    assert level(None) > logging.CRITICAL
    first = web.ask("GET", "/v1/loglevel").value[0]
    assert (first["logger"], first["level"]) == ("root", "OFF")
    assert web.ask("DELETE", "/v1/loglevel/root").status == 200
    assert level(None) == before
    refused = web.ask("DELETE", "/v1/loglevel/root")
    assert refused.status == 404 and "is not changed" in refused.value["error"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ottla.broker.gruop", "did you mean ottla.broker.group?"),
        ("ottla.broker..group", "There is no logger"),
        ("ottla.broker.%00", "There is no logger"),
        ("ottlas", "did you mean ottla?"),
        ("nobody.has.this", "There is no logger"),
    ],
)
def test_names_that_no_logger_has_are_refused_and_make_none(web, name, told):
    before = len(logging.root.manager.loggerDict)
    reply = web.ask("PUT", f"/v1/loglevel/{name}", body={"level": "DEBUG"})
    assert reply.status == 404
    assert told in reply.value["error"]
    assert len(logging.root.manager.loggerDict) == before


@pytest.mark.parametrize("body", [{}, {"level": "LOUD"}, {"level": "DEBUG", "for_ms": 0}, {"level": "DEBUG", "for": 1}])
def test_a_change_that_cannot_be_is_refused(web, body):
    assert web.ask("PUT", PATH, body=body).status == 422
    assert level() == logging.NOTSET
