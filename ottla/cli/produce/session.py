"""A run of `ottla produce`: the producer, and the report of what is written. shell"""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from ottla.cli.output import fail
from ottla.cli.produce.lines import BadLine, Line
from ottla.cli.produce.sending import LineRefused, Progress, Window, send_plain, send_transactions
from ottla.client.errors import CommitUnknown, ProducerFenced, TransactionError, describe_refusal
from ottla.client.open_producer import ProducerRefused, close_producer, open_producer
from ottla.printable import host_and_port, printable
from ottla.protocol.acls import AclOperation
from ottla.protocol.errors import ErrorCode
from ottla.wire import Unanswered
from ottla.wire.address import KafkaAddress
from ottla.wire.client_properties import RACK
from ottla.wire.cluster import Cluster
from ottla.wire.login import error_name
from ottla.wire.topology import DELETED

DONE, REFUSED, FAILED, INTERRUPTED = 0, 1, 2, 130


def count_partitions(cluster: Cluster, topic: str) -> int:
    """Return the number of partitions of a topic. Raises Unanswered if it does not exist or cannot be written."""
    topology = cluster.topology([topic], with_rights=True)
    error = topology.errors.get(topic, ErrorCode.NONE)
    if error in DELETED:
        raise Unanswered(f"topic {topic} does not exist: `ottla topics create {printable(topic)}` creates it")
    if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise Unanswered(f"topic {topic}: this user lacks WRITE on it, or it does not exist")
    if error:
        raise Unanswered(f"topic {topic}: the brokers answer {error_name(error)}")
    rights = topology.rights.get(topic)
    if rights is not None and AclOperation.WRITE not in rights:
        raise Unanswered(f"topic {topic}: this user lacks WRITE on it")
    return len(topology.topics[topic])


class Session:
    """Sends lines to a topic."""

    def __init__(
        self,
        address: KafkaAddress,
        security: Mapping[str, Any],
        topic: str,
        partitions: int,
        transactional_id: str | None,
    ) -> None:
        self._timeout_s = address.timeout_s
        self._topic = topic
        self._transactional_id = transactional_id
        try:
            self._producer = open_producer(
                [host_and_port(*each) for each in address.bootstrap],
                {name: given for name, given in security.items() if name != RACK},
                client_id=address.client_id,
                timeout_s=address.timeout_s,
                transactional_id=transactional_id,
            )
        except ProducerRefused as error:
            fail(FAILED, f"{address}: {error}")
        self._window = Window(self._producer, topic, partitions, self._timeout_s + 1)
        self._progress = Progress()

    def run(self, lines: Iterator[Line], every: int | None, *, abort: bool) -> int:
        """Send all lines and report the outcome on stderr. Return the exit code."""
        try:
            if self._transactional_id is None:
                send_plain(self._window, lines)
            else:
                send_transactions(self._producer, self._window, lines, every, abort, self._progress)
        except (BadLine, LineRefused) as error:
            self._report(f"ottla: line {error.number}: {error}; {self._outcome(abort)}")
            return REFUSED
        except TransactionError as error:
            self._report(f"ottla: {self._describe_end(error)}; {self._outcome(abort)}")
            return REFUSED
        except KeyboardInterrupt:
            self._report(f"ottla: interrupted; {self._outcome(abort)}")
            return INTERRUPTED
        finally:
            close_producer(self._producer, self._timeout_s)
        self._report(self._summary(abort))
        return DONE

    def _report(self, text: str) -> None:
        click.echo(printable(text), err=True)

    def _summary(self, abort: bool) -> str:
        records = f"{_count(self._window.written, 'record')} sent to {self._topic}"
        if self._transactional_id is None:
            return records
        return f"{records}, {_count(self._progress.transactions, 'transaction')} {'aborted' if abort else 'committed'}"

    def _describe_end(self, error: TransactionError) -> str:
        """Return the reason why a transaction has not ended as asked, and what becomes of its lines."""
        lines = f"the transaction of the lines from {self._progress.last_line + 1} on"
        if isinstance(error, CommitUnknown):
            return f"{lines} may be committed or not, without an answer in time: `ottla consume` shows it"
        if isinstance(error, ProducerFenced):
            code = "" if error.code is None else f" ({error.code.name})"
            return f"{lines} is aborted: another producer has this transactional id, or it was open for too long{code}"
        cause = error.__cause__
        if isinstance(cause, LineRefused):
            return f"{lines} will be aborted: line {cause.number}: {cause}"
        return f"{lines} will be aborted: {describe_refusal(cause or error)}"

    def _outcome(self, abort: bool) -> str:
        """Return the lines that are in the topic after an error."""
        if self._transactional_id is not None:
            return _lines_text(self._progress.last_line, "aborted as asked" if abort else "committed")
        before = self._window.written
        after = self._window.drain()
        text = _lines_text(before, "written")
        return f"{text}, and {_count(after, 'later line')} {'is' if after == 1 else 'are'}" if after else text


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _lines_text(last: int, outcome: str) -> str:
    if last < 2:
        return f"line 1 is {outcome}" if last else f"no line is {outcome}"
    return f"lines 1 to {last} are {outcome}"
