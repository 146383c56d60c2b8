"""Records of lines on their way to the brokers, in transactions if asked, and the outcome. shell"""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from ottla.cli.produce.lines import BadLine, Line
from ottla.client.errors import code_of, describe_refusal
from ottla.client.transaction import transaction
from ottla.protocol.errors import ErrorCode

MOST_RECORDS: Final = 10_000
MOST_BYTES: Final = 32 * 1024 * 1024


class LineRefused(Exception):
    """A line whose record was not written, with the reason and the remedy."""

    def __init__(self, line: int, size_bytes: int, error: BaseException) -> None:
        if code_of(error) == ErrorCode.MESSAGE_TOO_LARGE:
            reason = (
                f"a record of {size_bytes} bytes is above the topic's max.message.bytes (MESSAGE_TOO_LARGE): raise it, "
                "or send smaller records"
            )
        elif type(error).__name__ == "KafkaTimeoutError":
            reason = "no broker confirmed it within --timeout-s, so it may be written or not: `ottla consume` shows it"
        else:
            reason = describe_refusal(error)
        super().__init__(reason)
        self.number = line


class _Sent(NamedTuple):
    number: int
    size_bytes: int
    future: Any


class Window:
    """Records that were sent and not acknowledged yet, in the order of their lines, at most as many as fit.

    `partitions`: the number of partitions of the topic. `written`: the number of acknowledged records.
    """

    def __init__(self, producer: Any, topic: str, partitions: int, timeout_s: float) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._timeout_s = timeout_s
        self._pending: deque[_Sent] = deque()
        self._pending_bytes = 0
        self.written = 0

    def send(self, line: Line) -> None:
        """Send the record of a line, and wait while too many are not acknowledged. Raises BadLine, LineRefused."""
        if line.partition is not None and line.partition >= self._partitions:
            last = self._partitions - 1
            raise BadLine(line.number, f"topic {self._topic} has partitions 0 to {last}, not {line.partition}")
        if line.key is None and line.value is None:
            raise BadLine(line.number, "it has neither key nor value, which kafka-python does not send")
        try:
            future = self._producer.send(
                self._topic,
                line.value,
                key=line.key,
                headers=list(line.headers),
                partition=line.partition,
                timestamp_ms=line.timestamp_ms,
            )
        except Exception as error:  # those of kafka-python, which have no common class
            raise LineRefused(line.number, line.size_bytes, error) from error
        self._pending.append(_Sent(line.number, line.size_bytes, future))
        self._pending_bytes += line.size_bytes
        while len(self._pending) > MOST_RECORDS or self._pending_bytes > MOST_BYTES:
            self._await_oldest()

    def wait(self) -> None:
        """Wait until all records are acknowledged. Raises LineRefused."""
        while self._pending:
            self._await_oldest()

    def drain(self) -> int:
        """Wait for the records that are still on their way after an error. Return the number of those written."""
        before = self.written
        while self._pending:
            with suppress(LineRefused):  # the first error was reported, and is the cause of others
                self._await_oldest()
        return self.written - before

    def _await_oldest(self) -> None:
        oldest = self._pending.popleft()
        self._pending_bytes -= oldest.size_bytes
        try:
            oldest.future.get(timeout=self._timeout_s)
        except Exception as error:  # as above
            raise LineRefused(oldest.number, oldest.size_bytes, error) from error
        self.written += 1


class Progress:
    """Transactions that have ended as asked: their number, and the last line of the last one."""

    def __init__(self) -> None:
        self.transactions = 0
        self.last_line = 0


class _Abort(Exception):
    """The transaction is to be aborted, as asked."""


def send_plain(window: Window, lines: Iterator[Line]) -> None:
    """Send records without transactions. Raises BadLine, LineRefused."""
    try:
        for line in lines:
            window.send(line)
    except BadLine:
        window.wait()  # an earlier line that is refused is the first error
        raise
    window.wait()


def send_transactions(
    producer: Any, window: Window, lines: Iterator[Line], every: int | None, abort: bool, progress: Progress
) -> None:
    """Send records in transactions of `every` lines, or in one. Raises BadLine, LineRefused, TransactionError.

    A transaction begins with its first line, and is aborted at an error.
    """
    while (first := next(lines, None)) is not None:
        last = first.number
        try:
            with transaction(producer):
                for line in chain([first], islice(lines, None if every is None else every - 1)):
                    window.send(line)
                    last = line.number
                window.wait()
                if abort:
                    raise _Abort
        except _Abort:
            pass
        progress.transactions += 1
        progress.last_line = last
