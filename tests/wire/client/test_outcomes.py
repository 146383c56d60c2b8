"""Errors of transaction() and contents of the log after each failure: tests of the table in docs/client.md."""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.client import TransactionError
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.testkit.proxying import ProxyServer
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.client.groups import Member, throw_out
from tests.wire.client.refusals import REFUSALS, WAITS
from tests.wire.client.topics import end, make_topic, values

ROOT = Path(__file__).parents[3]
DESCRIBE_TRANSACTIONS = 65
HEADING = "## What each failure comes to"
# A commit of librdkafka does not say why records reached no partition (tests/wire/client/test_delivery_reports.py).
UNNAMED = {(failure, "confluent-kafka") for failure in list(REFUSALS)[2:5]}
PROGRAM = """
import sys
from tests.wire.client.libraries import client
library, bootstrap, name, ledger, audit = sys.argv[1:]
kafka = client(library)
kafka.run(kafka.producer(bootstrap, name), [("send", ledger, "1"), ("send", audit, "2"), "settle"])
"""


class Play:
    """A transaction that sends a record to each of two topics, and its outcome."""

    def __init__(self, kafka, broker, name, proxies):
        self.kafka, self.broker, self.name, self.proxies = kafka, broker, name, proxies
        self.error = None
        self.use_new_topics()

    def use_new_topics(self):
        self.ledger, self.audit = make_topic(self.broker), make_topic(self.broker, **{"max.message.bytes": "2000"})
        self.records = [("send", self.ledger, "1"), ("send", self.audit, "2")]

    def behind_a_proxy(self, at, do, times=1):
        """Return a proxy with a fault on the commit, and the fault."""
        proxy = self.proxies.enter_context(ProxyServer(self.broker.bootstrap))
        return proxy, proxy.add(at=at, api="EndTxn", do=do, times=times)

    def block(self, *behind, bootstrap=None, lasts_ms=60_000, settings=None, **options):
        """Run the block and return the name of the error that it raised."""
        where = bootstrap or self.broker.bootstrap
        producer = self.kafka.producer(where, self.name, timeout_ms=lasts_ms, **settings or {})
        return self.run(producer, *behind, **options)

    def run(self, producer, *behind, **options):
        return self.outcome(lambda: self.kafka.run(producer, [*self.records, *behind], **options))

    def outcome(self, steps):
        """Return the name of the error that the steps raise, and store it."""
        try:
            steps()
        except ZeroDivisionError:
            return "your exception"
        except Exception as error:
            self.error = error
            return f"`{type(error).__name__}`"
        return "committed"

    def visible(self):
        """Return the records that a read_committed reader finds after a new producer has ended the open transaction."""
        self.kafka.producer(self.broker.bootstrap, self.name)
        found = values(self.broker, self.ledger) + values(self.broker, self.audit)
        return {(): "no records", ("1", "2"): "all records"}.get(tuple(found), f"torn: {found}")


def raises(play):
    return play.block("settle", ZeroDivisionError())


def refuse(play):
    return play.block("settle", ("send", play.audit, "x" * 5000))


def above_the_clients_limit(play):
    return play.block("settle", ("send", play.ledger, "x" * 2_000_000))


def fence(play):
    return play.block("settle", lambda: play.kafka.producer(play.broker.bootstrap, play.name))


def timed_out(play):
    def wait_for_the_abort():
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while sum(end(play.broker, play.ledger, "read_committed").values()) < 2:
            assert time.monotonic() < deadline, "the broker did not abort the transaction"

    return play.block("settle", wait_for_the_abort, lasts_ms=1000)


def forgotten(play):
    producer = play.kafka.producer(play.broker.bootstrap, play.name)
    host, _, port = play.broker.bootstrap.rpartition(":")
    request = codec.request_class(DESCRIBE_TRANSACTIONS)(transactional_ids=[play.name])
    deadline, code = time.monotonic() + EVENT_TIMEOUT_S, None
    with BlockingConnection(host, int(port)) as connection:
        while code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            assert time.monotonic() < deadline, "the broker did not forget the id"
            code = connection.send(request).transaction_states[0].error_code
    raised = play.run(producer)
    if raised == "`TransactionAborted`":  # then the producer is usable
        lost = play.ledger, play.audit, play.records
        play.use_new_topics()
        assert play.run(producer) == "committed"
        play.ledger, play.audit, play.records = lost
    return raised


def answered_late(play):
    proxy, late = play.behind_a_proxy("reply", "hold", times=None)
    raised = play.block("settle", bootstrap=proxy.bootstrap, timeout_ms=1500)
    assert late.hits
    proxy.plan.release(late.id)
    return raised


def lose_answer(play):
    proxy, lost = play.behind_a_proxy("reply", "lose")
    raised = play.block("settle", bootstrap=proxy.bootstrap, timeout_ms=1500)
    assert lost.hits
    return raised


def lost_behind_the_commit(play):
    proxy, lost = play.behind_a_proxy("reply", "drop")
    raised = play.block(bootstrap=proxy.bootstrap)
    assert lost.hits
    return raised


def lost_before_the_commit(play):
    proxy, lost = play.behind_a_proxy("request", "drop")
    raised = play.block(bootstrap=proxy.bootstrap)
    assert lost.hits
    return raised


def kill(play, at):
    """Kill the client while the proxy holds its request, which is then lost."""
    proxy, held = play.behind_a_proxy(at, "hold")
    arguments = play.kafka.name, proxy.bootstrap, play.name, play.ledger, play.audit
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, env=environment)
    try:
        proxy.await_hits(held, timeout_s=EVENT_TIMEOUT_S)
    finally:
        program.kill()
        program.wait()
    return "killed"


def kill_before_commit(play):
    return kill(play, "request")


def kill_after_commit(play):
    return kill(play, "reply")


def thrown_out(play):
    source = play.ledger
    play.run(play.kafka.producer(play.broker.bootstrap, f"feeder-of-{play.name}"))
    play.use_new_topics()
    member = Member(play.kafka, play.broker, play.name, source, play.ledger)
    member.poll_records()
    return play.run(member.producer, "settle", lambda: throw_out(play.broker, member.group), **member.options)


FAILURES = {
    "the block raises": raises,
    "an error asks for an abort: a record is too large": refuse,
    "a record is above the client's own limit (`max_request_size`, `message.max.bytes`)": above_the_clients_limit,
    "another producer has taken the id over": fence,
    "the transaction outlives its timeout": timed_out,
    "the broker has forgotten the id (INVALID_PRODUCER_ID_MAPPING)": forgotten,
    "the group has thrown the consumer out": thrown_out,
    "the commit is answered after `timeout_ms`": answered_late,
    "the commit is never answered": lose_answer,
    "the connection is lost before the commit arrives": lost_before_the_commit,
    "the connection is lost before the answer arrives": lost_behind_the_commit,
    "the program is killed before its commit arrives": kill_before_commit,
    "the program is killed before the answer arrives": kill_after_commit,
    **WAITS,
    **REFUSALS,
}


def read_table():
    """Return the table of the documentation, by failure and library."""
    section = (ROOT / "docs" / "client.md").read_text().partition(HEADING)[2].partition("\n## ")[0]
    header, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    )
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def test_the_table_has_a_row_for_each_failure():
    assert list(read_table()) == list(FAILURES)


@pytest.fixture
def proxies():
    """Yield a stack of proxies, which close after their clients."""
    with ExitStack() as proxies:
        yield proxies


def broker_of(failure):
    """Return the name of the fixture with the broker for this failure."""
    if failure in REFUSALS:
        return "acl_broker"
    return "forgetful" if FAILURES[failure] is forgotten else "broker"


@pytest.mark.slow
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_has_the_outcome_of_the_documented_table(request, proxies, kafka, name, failure):
    play = Play(kafka, request.getfixturevalue(broker_of(failure)), name, proxies)
    raised = FAILURES[failure](play)
    assert f"{raised}; {play.visible()}" == read_table()[failure][kafka.name]
    if failure in REFUSALS and isinstance(play.error, TransactionError):
        assert not play.error.retriable
        assert "first " in str(play.error)
    if (code := re.search(r"\(([A-Z_]+)\)", failure)) and (failure, kafka.name) not in UNNAMED:
        assert play.error.code is ErrorCode[code[1]]
