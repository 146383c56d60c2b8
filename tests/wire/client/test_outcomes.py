"""What transaction() raises, and what is in the log, after each failure: the table of docs/client.md, played."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.client.connection import BlockingConnection
from ottla.protocol import codec
from ottla.protocol.errors import ErrorCode
from ottla.testkit.proxying import ProxyServer
from tests.conformance.targets import TARGETS
from tests.patience import PATIENCE_S
from tests.wire.client.groups import Member, throw_out
from tests.wire.client.topics import end, make_topic, values

ROOT = Path(__file__).parents[3]
DESCRIBE_TRANSACTIONS = 65
HEADING = "## What each failure comes to"
# A transactional id is forgotten a second after its last transaction.
FORGETFUL = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
PROGRAM = """
import sys
from tests.wire.client.libraries import client
library, bootstrap, name, ledger, audit = sys.argv[1:]
kafka = client(library)
kafka.run(kafka.producer(bootstrap, name), [("send", ledger, "1"), ("send", audit, "2"), "settle"])
"""


class Play:
    """A transaction that sends a record to each of two topics, and what became of it."""

    def __init__(self, kafka, broker, name, proxies):
        self.kafka, self.broker, self.name, self.proxies = kafka, broker, name, proxies
        self.use_new_topics()

    def use_new_topics(self):
        self.ledger, self.audit = make_topic(self.broker), make_topic(self.broker, **{"max.message.bytes": "2000"})
        self.records = [("send", self.ledger, "1"), ("send", self.audit, "2")]

    def behind_a_proxy(self, at, do, times=1):
        """A proxy with a fault that strikes the commit, and the fault."""
        proxy = self.proxies.enter_context(ProxyServer(self.broker.bootstrap))
        return proxy, proxy.add(at=at, api="EndTxn", do=do, times=times)

    def block(self, *behind, bootstrap=None, lasts_ms=60_000, **options):
        """Run the block; the name of what it raised."""
        producer = self.kafka.producer(bootstrap or self.broker.bootstrap, self.name, timeout_ms=lasts_ms)
        return self.run(producer, *behind, **options)

    def run(self, producer, *behind, **options):
        try:
            self.kafka.run(producer, [*self.records, *behind], **options)
        except ZeroDivisionError:
            return "your exception"
        except Exception as error:
            return f"`{type(error).__name__}`"
        return "committed"

    def visible(self):
        """What a reader of committed records finds, when a successor has settled what was left."""
        self.kafka.producer(self.broker.bootstrap, self.name)
        found = values(self.broker, self.ledger) + values(self.broker, self.audit)
        return {(): "no records", ("1", "2"): "all records"}.get(tuple(found), f"torn: {found}")


def raises(play):
    return play.block("settle", ZeroDivisionError())


def refused(play):
    return play.block("settle", ("send", play.audit, "x" * 5000))


def above_the_clients_limit(play):
    return play.block("settle", ("send", play.ledger, "x" * 2_000_000))


def fenced(play):
    return play.block("settle", lambda: play.kafka.producer(play.broker.bootstrap, play.name))


def timed_out(play):
    def wait_for_the_abort():
        deadline = time.monotonic() + PATIENCE_S
        while sum(end(play.broker, play.ledger, "read_committed").values()) < 2:
            assert time.monotonic() < deadline, "the broker did not abort the transaction"

    return play.block("settle", wait_for_the_abort, lasts_ms=1000)


def forgotten(play):
    producer = play.kafka.producer(play.broker.bootstrap, play.name)
    host, _, port = play.broker.bootstrap.rpartition(":")
    request = codec.request_class(DESCRIBE_TRANSACTIONS)(transactional_ids=[play.name])
    deadline, code = time.monotonic() + PATIENCE_S, None
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


def never_answered(play):
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


def killed(play, at):
    """What is held of a client that has gone is lost."""
    proxy, held = play.behind_a_proxy(at, "hold")
    arguments = play.kafka.name, proxy.bootstrap, play.name, play.ledger, play.audit
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, env=environment)
    try:
        proxy.await_hits(held, timeout_s=PATIENCE_S)
    finally:
        program.kill()
        program.wait()
    return "killed"


def killed_before_the_commit(play):
    return killed(play, "request")


def killed_behind_the_commit(play):
    return killed(play, "reply")


def thrown_out(play):
    source = play.ledger
    play.run(play.kafka.producer(play.broker.bootstrap, f"feeder-of-{play.name}"))
    play.use_new_topics()
    member = Member(play.kafka, play.broker, play.name, source, play.ledger)
    member.polled()
    return play.run(member.producer, "settle", lambda: throw_out(play.broker, member.group), **member.options)


FAILURES = {
    "the block raises": raises,
    "an error asks for an abort: a record is too large": refused,
    "a record is above the client's own limit (`max_request_size`, `message.max.bytes`)": above_the_clients_limit,
    "another producer has taken the id over": fenced,
    "the transaction outlives its timeout": timed_out,
    "the broker has forgotten the id (INVALID_PRODUCER_ID_MAPPING)": forgotten,
    "the group has thrown the consumer out": thrown_out,
    "the commit is answered after `timeout_ms`": answered_late,
    "the commit is never answered": never_answered,
    "the connection is lost before the commit arrives": lost_before_the_commit,
    "the connection is lost before the answer arrives": lost_behind_the_commit,
    "the program is killed before its commit arrives": killed_before_the_commit,
    "the program is killed before the answer arrives": killed_behind_the_commit,
}


def documented():
    """The table, by failure and library."""
    section = (ROOT / "docs" / "client.md").read_text().partition(HEADING)[2].partition("\n## ")[0]
    header, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    )
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def test_the_table_has_a_row_for_each_failure():
    assert list(documented()) == list(FAILURES)


@pytest.fixture(scope="session")
def forgetful(target, tmp_path_factory):
    if target == "given":
        pytest.skip("OTTLA_TEST_BOOTSTRAP names a broker that is not this test's to configure")
    broker = TARGETS[target](tmp_path_factory.mktemp(f"forgetful-{target}"), FORGETFUL).start()
    yield broker
    broker.stop()


@pytest.fixture
def proxies():
    """They stay until the clients behind them are closed."""
    with ExitStack() as proxies:
        yield proxies


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_comes_to_what_the_table_says(request, proxies, kafka, broker, name, failure):
    plays = FAILURES[failure]
    play = Play(kafka, request.getfixturevalue("forgetful") if plays is forgotten else broker, name, proxies)
    raised = plays(play)
    assert f"{raised}; {play.visible()}" == documented()[failure][kafka.name]
