"""The report of a transaction that has not ended as asked."""

import pytest
from kafka.errors import KafkaTimeoutError, TransactionalIdAuthorizationFailedError

from ottla.cli.produce.sending import LineRefused
from ottla.cli.produce.session import Session
from ottla.client.errors import CommitUnknown, TransactionAborted, TransactionFatal
from ottla.wire.address import parse_kafka_address


@pytest.fixture
def session(monkeypatch):
    monkeypatch.setattr("ottla.cli.produce.session.open_producer", lambda *_, **__: None)
    monkeypatch.setattr("ottla.cli.produce.session.close_producer", lambda *_: None)
    return Session(parse_kafka_address("host:1"), {}, "t", 1, "id")


@pytest.mark.parametrize(
    ("error", "cause", "text"),
    [
        (CommitUnknown(""), None, "may be committed or not, without an answer in time: `ottla consume` shows it"),
        (
            TransactionFatal(""),
            LineRefused(2, 1, KafkaTimeoutError()),
            "will be aborted: line 2: no broker confirmed it within --timeout-s, so it may be written or not: "
            "`ottla consume` shows it",
        ),
        (
            TransactionAborted(""),
            TransactionalIdAuthorizationFailedError(),
            "will be aborted: no permission to write with this transactional id "
            "(TRANSACTIONAL_ID_AUTHORIZATION_FAILED): allow this user WRITE on the transactional id",
        ),
    ],
)
def test_a_transaction_that_fails_is_one_line(session, monkeypatch, capsys, error, cause, text):
    def fail(*_):
        raise error from cause

    monkeypatch.setattr("ottla.cli.produce.session.send_transactions", fail)
    assert session.run(iter(()), None, abort=False) == 1
    assert capsys.readouterr().err == f"ottla: the transaction of the lines from 1 on {text}; no line is committed\n"


def test_an_interruption_is_reported_with_its_exit_code(session, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.cli.produce.session.send_transactions", interrupt)
    assert session.run(iter(()), None, abort=False) == 130
    assert capsys.readouterr().err == "ottla: interrupted; no line is committed\n"
