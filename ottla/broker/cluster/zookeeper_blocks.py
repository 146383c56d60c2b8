"""Blocks of producer ids from the ZooKeeper node that Kafka 0.11 to 3.x shares between its brokers. shell

The node has the last block. A broker reads it and replaces it by the next block, if the version is still the one that
it has read. The block is then logged as a ProducerIdsRecord, and no id is used before that record is durable: the
metadata log knows every id that was used, and ZooKeeper holds the counter and nothing else.

A change whose answer is lost is never used, also if the node has the expected bytes afterwards: another broker with the
same id writes the same bytes. It costs a gap of a block. A node that says less than the metadata log is refused.

Source: `ZkProducerIdManager`, `ProducerIdBlockZNode` of Kafka 3.9.1.
"""

import logging
from collections import deque
from typing import Final, NamedTuple

from ottla.broker.cluster.adoption_records import PRODUCER_ID_BLOCK
from ottla.broker.cluster.controller import Controller, OnBlock, OnDurable
from ottla.broker.deadline import Deadline
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.zookeeper import NO_ANSWER, Answer, OnAnswer, Outcome, ZooKeeper
from ottla.broker.turns import Turns
from ottla.protocol.errors import ErrorCode
from ottla.protocol.producer_id_node import LAST_ID, BadBlock, Block, ZooKeeperAddress, encode_block, parse_block

log = logging.getLogger(__name__)

ANSWER_MS: Final = 5_000.0
"""The longest wait for an answer."""
CONNECT_MS: Final = 5_000.0
"""The time after the start at which a missing connection is logged."""
FIRST_BACKOFF_MS: Final = 50.0
LAST_BACKOFF_MS: Final = 2_000.0
_MOST_LISTED: Final = 10


class _Request(NamedTuple):
    """A block that a broker of the process waits for."""

    node_id: int
    applied: OnBlock
    durable: OnDurable


class ZooKeeperBlocks:
    """Takes blocks for the brokers of the process, one at a time, so their records are logged in the order of ids."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        address: ZooKeeperAddress,
        controller: Controller,
        turns: Turns,
        clock: Clock,
        size: int = PRODUCER_ID_BLOCK,
    ) -> None:
        self._zookeeper = zookeeper
        self._address = address
        self._controller = controller
        self._turns = turns
        self._clock = clock
        self._size = size
        self._waiting: deque[_Request] = deque()
        self._deadline: Deadline | None = None
        self._backoff_ms = FIRST_BACKOFF_MS
        self._not_before_ms = 0.0
        self.problem = ""
        """Why the last attempt has failed; empty if it has not."""
        zookeeper.on_connected = self._report
        Deadline(clock, turns, CONNECT_MS, self._report_missing)

    def take_block(self, node_id: int, applied: OnBlock, durable: OnDurable) -> bool:
        """Take the next block for a broker. Return False for some time after an attempt has failed.

        `applied` gets the block when its record is durable; then, and if there is no block, `durable` gets the error.
        """
        if self._clock.monotonic_ms() < self._not_before_ms:
            return False
        self._waiting.append(_Request(node_id, applied, durable))
        if self._deadline is None:
            self._begin()
        return True

    def close(self) -> None:
        """End the session with ZooKeeper."""
        self._zookeeper.close()

    # --- an attempt -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._zookeeper.read(self._address.path, self._expect(self._on_read))

    def _expect(self, on_answer: OnAnswer) -> OnAnswer:
        """Return a callback that ignores an answer after its time, when another attempt may be under way."""

        def give_up() -> None:
            self._deadline = None
            self._fail_for(NO_ANSWER)

        def receive(answer: Answer) -> None:
            if deadline is self._deadline:
                deadline.cancel()
                self._deadline = None
                on_answer(answer)

        deadline = self._deadline = Deadline(self._clock, self._turns, ANSWER_MS, give_up)
        return receive

    def _on_read(self, answer: Answer) -> None:
        if answer.outcome not in (Outcome.OK, Outcome.NO_NODE):
            self._fail_for(answer)
            return
        known = self._controller.next_producer_id
        try:
            block = self._block_after(parse_block(answer.data), known)
        except BadBlock as error:
            self._fail(
                f"{self._address.node}: {error}. "
                f"Raise it above all ids in use, at least: ottla ids raise {self._address} {max(known, 1)}"
            )
        else:
            self._write_block(block, None if answer.outcome is Outcome.NO_NODE else answer.version)

    def _block_after(self, last: Block | None, known: int) -> range:
        """Return the block after the node's. BadBlock if there is none, or if the log knows more ids than the node."""
        first = known if last is None else last.last + 1
        if first < known:
            raise BadBlock(
                f"it ends at producer id {first - 1}, but the metadata log knows ids up to {known - 1}: "
                "it was wiped or restored"
            )
        if first > LAST_ID - self._size:
            raise BadBlock(
                f"it ends at producer id {first - 1}, and int64 has no block after it. "
                "If no broker has used such ids, delete the node"
            )
        return range(first, first + self._size)

    def _write_block(self, block: range, version: int | None) -> None:
        """Replace the node if it has this version, or create it if there was none."""
        data = encode_block(Block(self._waiting[0].node_id, block.start, block.stop - 1))

        def on_answer(answer: Answer) -> None:
            if answer.outcome is Outcome.OK:
                self._finish(block)
            elif answer.outcome in (Outcome.OTHER_VERSION, Outcome.EXISTS, Outcome.NO_NODE):
                self._begin()  # another broker was faster
            else:
                self._fail_for(answer)

        if version is None:
            self._zookeeper.create(self._address.path, data, self._expect(on_answer))
        else:
            self._zookeeper.change(self._address.path, data, version, self._expect(on_answer))

    def _finish(self, block: range) -> None:
        """Log the block and continue with the next request."""
        request = self._waiting.popleft()
        log.info("Took the producer ids %d to %d from ZooKeeper %s", block.start, block.stop - 1, self._address)
        if self.problem:
            log.info("ZooKeeper %s gives producer ids again", self._address)
        self.problem, self._backoff_ms = "", FIRST_BACKOFF_MS
        if not self._controller.log_producer_ids(request.node_id, block, request.applied, request.durable):
            request.durable(ErrorCode.KAFKA_STORAGE_ERROR)
        if self._waiting and self._deadline is None:
            self._begin()

    def _fail_for(self, answer: Answer) -> None:
        self._fail(f"{self._address.node}: {answer}")

    def _fail(self, problem: str) -> None:
        """Answer all requests, and begin no other attempt for a while."""
        if problem != self.problem:
            log.warning("No new producer ids, known ones continue. %s", problem)
        self.problem = problem
        self._not_before_ms = self._clock.monotonic_ms() + self._backoff_ms
        self._backoff_ms = min(self._backoff_ms * 2, LAST_BACKOFF_MS)
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.durable(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    # --- the report of the start ----------------------------------------------------------------------------------

    def _report_missing(self) -> None:
        if not self._zookeeper.is_connected:
            log.warning("ZooKeeper %s is not reached; the broker goes on without new producer ids", self._address)

    def _report(self) -> None:
        """Log what the node says. Called when ZooKeeper is connected."""
        self._zookeeper.read(self._address.path, self._report_node)

    def _report_node(self, answer: Answer) -> None:
        if answer.outcome is Outcome.NO_NODE:
            self._zookeeper.list_children("/", self._report_root)
        elif answer.outcome is Outcome.OK:
            log.info("%s has %.200s", self._address.node, answer.data.decode(errors="replace"))

    def _report_root(self, answer: Answer) -> None:
        names = ", ".join(answer.children[:_MOST_LISTED]) or "no nodes"
        if answer.outcome is not Outcome.OK:
            names = f"unknown nodes: {answer}"
        log.warning("%s is missing: it is created with the first block. / has %s", self._address.node, names)
