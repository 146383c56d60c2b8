"""A broker under test: requests for its content, and assertions about it. free"""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from ottla.printable import printable
from ottla.protocol.errors import ErrorCode
from ottla.testkit.control.journal import JournalEntry
from ottla.testkit.history.events import events
from ottla.testkit.history.journal_entries import entry_from_json
from ottla.testkit.history.lines import checker_lines
from ottla.testkit.kit.admin import Admin, quote_segment
from ottla.testkit.kit.by_hand import ProducerByHand
from ottla.testkit.kit.clock import BrokerClock
from ottla.testkit.kit.fault_registries import BrokerFaultRegistry
from ottla.testkit.kit.faults import Faults, PlannedFault
from ottla.testkit.kit.groups import Group
from ottla.testkit.kit.ledger import LedgerEntry, read_ledger
from ottla.testkit.kit.leftovers import GROUP, HANGING, TOPIC, TRANSACTIONAL_ID, Leftovers
from ottla.testkit.kit.process import BrokerProcess, NeedsAdminPort, NeedsOwnBroker
from ottla.testkit.kit.report_lines import differences, hanging_line, transaction_line
from ottla.testkit.kit.several import SeveralBrokers
from ottla.testkit.kit.wire import KafkaError, OpenProducer, Transaction, Wire, transaction_version
from ottla.testkit.reading import TopicRecord
from ottla.verdict import KnownTransaction, OpenTransaction, by_producer, judge

__tracebackhide__ = True  # pytest then shows the line of the test and the message
WAIT_S: Final = 60.0
SETTLE_S: Final = 5.0
_POLL_S: Final = 0.02
_DECIDED: Final = frozenset({"PrepareCommit", "PrepareAbort"})

Key = Callable[[TopicRecord], Hashable]


class Broker(SeveralBrokers):
    """A broker under test.

    `process` is set if the test kit started the broker. Without it, the test can control the clock and the faults of
    the broker only if `admin` is given, a client of its admin port.
    """

    def __init__(self, bootstrap: str = "", process: BrokerProcess | None = None, admin: Admin | None = None) -> None:
        self._bootstrap = bootstrap
        self._admin = admin
        self.process = process
        self.wire = Wire(lambda: self.bootstrap, self._await_restart)
        self.clock = BrokerClock(self.admin)
        self.faults = Faults(BrokerFaultRegistry(self.admin, can_restart=process is not None), process)
        self.leftovers = Leftovers(only_made=not self.is_steered)
        self._journal_since = 0
        self._log_from = 0

    @property
    def bootstrap(self) -> str:
        """The value for the `bootstrap.servers` of clients."""
        return self._bootstrap if self.process is None else self.process.bootstrap

    @property
    def host(self) -> str:
        """The host of `bootstrap`, of the first broker if there are several."""
        return self._first.hostname or ""

    @property
    def port(self) -> int:
        """The port of `bootstrap`, of the first broker if there are several."""
        return self._first.port or 0

    @property
    def _first(self) -> SplitResult:
        return urlsplit(f"//{self.bootstrap.partition(',')[0]}")

    @property
    def data_dir(self) -> Path:
        """The log directory, for audits. NeedsOwnBroker if the test kit did not start the broker."""
        return self._own().data_dir

    def admin(self) -> Admin:
        """Return a client of the admin port. NeedsAdminPort if its address is not known."""
        if self.process is not None:
            self.process.await_restart(exit_s=0)  # the next start has another port
            return Admin(self.process.admin_url)
        if self._admin is None:
            raise NeedsAdminPort(f"{self.bootstrap} has no known admin port")
        return self._admin

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again on the same port and files."""
        self._own().restart()

    def kill(self) -> None:
        """Kill the broker with SIGKILL; `restart` starts it again."""
        self._own().kill()

    def wait_crashed(self, timeout_s: float = WAIT_S) -> None:
        """Wait until `faults.crash` has ended the broker, and with `restart=True` until it serves again.

        Raises TimeoutError.
        """
        self._own().wait_ended(timeout_s)

    def close(self) -> None:
        """Close the connections of this object; the broker keeps running."""
        self.wire.close()

    def _await_restart(self) -> bool:
        return self.process is not None and self.process.await_restart()

    def _own(self) -> BrokerProcess:
        if self.process is None:
            raise NeedsOwnBroker(
                f"{self.bootstrap} was not started by the test kit, which cannot restart it or read its files"
            )
        return self.process

    # ---- topics and records

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
    ) -> str:
        """Create a topic and return its name. KafkaError, with the broker's reason, if it refuses.

        It has as many replicas as a process of several brokers has brokers, if no other number is given.
        """
        self.leftovers.note(TOPIC, name)
        self.wire.create_topic(name, partitions, dict(configs or {}), replication_factor or self.broker_count)
        return name

    @property
    def broker_count(self) -> int:
        """The number of brokers that the process of this broker presents itself as; 1 for any other Kafka."""
        return 1 if self.process is None else self.process.brokers

    def topics(self) -> dict[str, int]:
        """Return {topic: number of partitions}, without internal topics."""
        return self.wire.topics()

    def records(self, topic: str, partition: int | None = None, isolation: str = "read_committed") -> list[TopicRecord]:
        """Return the records that a consumer of this isolation level gets from the start, partition by partition."""
        partitions = range(self._partitions(topic)) if partition is None else [partition]
        return [record for index in partitions for record in self.wire.read(topic, index, isolation)]

    def lso(self, topic: str, partition: int = 0) -> int:
        """Return the last stable offset."""
        return self.wire.end_offset(topic, partition, "read_committed")

    def high_watermark(self, topic: str, partition: int = 0) -> int:
        """Return the high watermark, the end of the log for a read_uncommitted consumer."""
        return self.wire.end_offset(topic, partition, "read_uncommitted")

    def _partitions(self, topic: str) -> int:
        topics = self.topics()
        if topic not in topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}, only {sorted(topics)}")
        return topics[topic]

    # ---- transactions and groups

    def transactions(self) -> list[Transaction]:
        """Return every transactional id with the state that its coordinator reports."""
        return self.wire.transactions()

    def transaction(self, transactional_id: str) -> Transaction | None:
        """Return the state of this transactional id, or None if its coordinator does not know it."""
        found = (each for each in self.transactions() if each.transactional_id == transactional_id)
        return next(found, None)

    def hanging_transactions(self) -> list[OpenProducer]:
        """Return the transactions that a partition holds open and no coordinator has open there. They stay open until
        an administrator ends them (KIP-664, `kafka-transactions.sh abort`).

        The internal topics count too: a transaction can hang in `__consumer_offsets`.
        """
        found = self._open_producers(self.wire.topics(with_internal=True))
        if not found:
            return []
        known = by_producer(_known(each) for each in self.transactions())
        hanging = [each for each in found if _is_hanging(each, known.get(each.producer_id, ()))]
        if not hanging:
            return []
        # A transaction that ended between the two requests is no longer open in its partition.
        still_open = set(self._open_producers({each.topic: 1 + each.partition for each in hanging}))
        return [each for each in hanging if each in still_open]

    def _open_producers(self, topics: Mapping[str, int]) -> list[OpenProducer]:
        return [each for topic, count in topics.items() for each in self.wire.open_producers(topic, range(count))]

    def abort_hanging(self, producer: OpenProducer) -> None:
        """Abort it as an administrator does: send WriteTxnMarkers to the partition leader. Raises KafkaError."""
        self.wire.abort_hanging(producer)

    def producer_by_hand(
        self, transactional_id: str | None, *, version: int = 2, identity: tuple[int, int] | None = None
    ) -> ProducerByHand:
        """Return a producer whose requests the test sends one by one.

        With `identity`, (producer id, epoch), it continues as an existing producer, even within a transaction.
        """
        self.leftovers.note(TRANSACTIONAL_ID, transactional_id)
        return ProducerByHand(self.wire, transactional_id, version, identity)

    @property
    def transaction_version(self) -> int:
        """The finalized level of `transaction.version`."""
        return transaction_version(self.wire)

    def preset_epoch(self, transactional_id: str, epoch: int) -> tuple[int, int]:
        """Set the epoch of a transactional id without an open transaction, and return (producer id, epoch).

        The id gets a new producer id with this epoch. Its next InitProducerId bumps the epoch. The highest epoch is
        32,767; bumping 32,766 gives another producer id.
        """
        answer = self.admin().put(f"/v1/transactional-ids/{quote_segment(transactional_id)}", {"epoch": epoch})
        return answer["producer_id"], answer["producer_epoch"]

    def group(self, group: str) -> Group:
        """Return a group with its members, as its coordinator describes it. Raises KafkaError if there is none."""
        return self.wire.group(group)

    def wait_until_stable(self, group: str, *, members: int | None = None, timeout_s: float = WAIT_S) -> Group:
        """Wait until each member of the group has the partitions of its target, and return the group.

        With `members`, also wait until the group has this number of members. Members take part in a rebalance only
        while the test polls them, so poll them in a thread, or call `group` between polls. The TimeoutError shows the
        group.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            seen = printable(f"there is no group {group}")
            with suppress(KafkaError):
                found = self.group(group)
                if found.is_stable and members in (None, len(found.members)):
                    return found
                seen = found.describe()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the group is not stable in {timeout_s:g} s: {seen}")
            time.sleep(_POLL_S)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group, {(topic, partition): offset}."""
        return self.wire.committed(group)

    def lag(self, group: str) -> dict[tuple[str, int], int]:
        """Return {(topic, partition): number of committed records after the group's committed offset}.

        Markers and aborted records are not counted.
        """
        return {
            place: sum(1 for _ in self.wire.read(*place, "read_committed", start=offset))
            for place, offset in self.committed(group).items()
        }

    def wait_until_lag_zero(self, group: str, *, topics: Iterable[str] = (), timeout_s: float = WAIT_S) -> None:
        """Wait until the group has committed an offset after every record, and has done so in each of these topics.

        Also wait for an open transaction with offsets of the group. The TimeoutError shows the remaining lag.
        """
        expected = {(topic, index) for topic in topics for index in range(self._partitions(topic))}
        deadline = time.monotonic() + timeout_s
        while True:
            seen: object = "its offsets wait for an open transaction"
            with suppress(KafkaError):
                lag = self.lag(group)
                missing = {place: "nothing committed" for place in expected - set(lag) if self._holds_records(*place)}
                lagging = missing | {place: f"{records} records" for place, records in lag.items() if records}
                if lag and not lagging:
                    return
                seen = lagging or "nothing committed"
            if time.monotonic() > deadline:
                late = printable(f"{group} has not caught up in {timeout_s:g} s: {seen}")
                raise TimeoutError(late + self._open_lines())
            time.sleep(_POLL_S)

    def _holds_records(self, topic: str, partition: int) -> bool:
        return next(self.wire.read(topic, partition, "read_committed"), None) is not None

    # ---- assertions

    def assert_committed(self, topic: str, values: Iterable[bytes | str]) -> None:
        """Assert that the topic has exactly these committed values, in any order, each as often as given.

        Waits for the markers of transactions that are already decided.
        """
        self._settle(topic)
        expected = Counter[Hashable](value.encode() if isinstance(value, str) else value for value in values)
        found = Counter[Hashable](record.value for record in self.records(topic))
        if expected != found:
            raise AssertionError(
                f"{topic} has {found.total()} committed records, {expected.total()} were expected"
                + differences("missing", expected - found)
                + differences("too many", found - expected)
                + self._open_lines()
            )

    def assert_no_open_transactions(self, *, wait_s: float = SETTLE_S) -> None:
        """Assert that no transaction is open and none hangs in a partition.

        Waits for the markers of transactions that are already decided.
        """
        deadline = time.monotonic() + wait_s
        while open_ids := [each for each in self.transactions() if each.is_open]:
            decided = all(each.state != "Ongoing" for each in open_ids)
            if not decided or time.monotonic() > deadline:
                raise AssertionError(
                    f"{len(open_ids)} transactions are open" + "".join(map(transaction_line, open_ids))
                )
            time.sleep(_POLL_S)
        hanging = self.hanging_transactions()
        if hanging:
            raise AssertionError(f"{len(hanging)} transactions hang" + "".join(map(hanging_line, hanging)))

    def assert_exactly_once(
        self, source: str, sink: str, *, key: Key | None = None, sink_key: Key | None = None
    ) -> None:
        """Assert that `sink` has one committed record for each committed record of `source`, and no others.

        Two records match if `key` of the source record equals `sink_key` (default: `key`) of the sink record. Without
        `key`, the values are compared.
        """
        self._settle(source, sink)
        key = key or (lambda record: record.value)
        expected = Counter(key(record) for record in self.records(source))
        found = Counter((sink_key or key)(record) for record in self.records(sink))
        if expected != found:
            raise AssertionError(
                f"{sink} does not have each record of {source} exactly once: {expected.total()} in the source, "
                f"{found.total()} in the sink"
                + differences("lost", expected - found)
                + differences("duplicated or not from the source", found - expected)
                + self._open_lines()
            )

    def _settle(self, *topics: str) -> None:
        """Wait for the markers of decided transactions in these topics, up to `SETTLE_S` seconds.

        The broker answers EndTxn before the markers are written. It retries a held or lost marker within a second.
        """
        deadline = time.monotonic() + SETTLE_S
        while any(
            each.state in _DECIDED and any(topic in topics for topic, _ in each.partitions)
            for each in self.transactions()
        ):
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)

    def _open_lines(self) -> str:
        """Return the open and the hanging transactions as text for a failure report."""
        opened = "".join(transaction_line(each) for each in self.transactions() if each.is_open)
        hanging = "".join(map(hanging_line, self.hanging_transactions()))
        return (opened and f"\nopen transactions:{opened}") + (hanging and f"\nhanging transactions:{hanging}")

    # ---- requests and operations of the clients

    def ledger(self) -> list[LedgerEntry]:
        """Return every transactional request since `begin` with its outcome, in the order of the requests."""
        return list(read_ledger(self.journal()))

    def history(self) -> list[dict[str, Any]]:
        """Return the operations of the clients since `begin`, as lines for `ottla check-history`."""
        return checker_lines(self.journal())

    def events(self) -> list[dict[str, Any]]:
        """Return every request since `begin` and its reply, decoded."""
        return list(events(self.journal()))

    def journal(self) -> list[JournalEntry]:
        """Return the requests and replies since `begin`."""
        admin, since, entries = self.admin(), self._journal_since, list[JournalEntry]()
        while True:
            page = admin.get(f"/v1/journal?since={since}")
            entries += map(entry_from_json, page["passages"])
            if not page["passages"] or entries[-1].number >= page["last"]:
                return entries
            since = entries[-1].number

    def wait_for_outcome(
        self, outcome: str, *, api: str = "", transactional_id: str = "", nth: int = 1, timeout_s: float = WAIT_S
    ) -> LedgerEntry:
        """Wait until a transactional request has this outcome (such as "CONCURRENT_TRANSACTIONS") for the `nth` time.

        The TimeoutError lists the outcomes of all requests.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            calls = [
                call
                for call in self.ledger()
                if api in ("", call.api) and transactional_id in ("", call.transactional_id)
            ]
            found = [call for call in calls if call.outcome == outcome]
            if len(found) >= nth:
                return found[nth - 1]
            if time.monotonic() > deadline:
                seen = Counter[Hashable](f"{call.api}: {call.outcome}" for call in calls)
                raise TimeoutError(f"no {outcome} in {timeout_s:g} s" + differences("answered", seen))
            time.sleep(_POLL_S)

    def begin(self) -> None:
        """Mark the start of a test: the ledger, the history, the events and the log excerpt begin here."""
        if self.process is not None:
            self._log_from = self.process.log_file.stat().st_size
        if self.is_steered:
            self._journal_since = int(self.admin().get("/v1/journal?limit=0")["last"])

    def end(self) -> list[PlannedFault]:
        """Clean up after a test, and return the faults that never fired.

        Aborts open transactions and deletes groups and topics: all on a broker that the test kit started, else those of
        `leftovers`. If the broker has a known admin port, this also removes the faults, undoes changes to several
        brokers, resets the clock, ends hanging transactions and forgets the transactional ids.
        """
        if self.process is not None and self.process.pid is None:
            self.process.start()
        try:
            never_fired = self.faults.clear() if self.is_steered else []
            if self.is_steered:
                self.reset_brokers()
                self.clock.reset()
            self._remove_leftovers()
        finally:
            self._restore_settings()
        return never_fired

    def _restore_settings(self) -> None:
        """Put back the settings that the test has changed. A broker of the kit keeps its own."""

    def _remove_leftovers(self) -> None:
        topics = self.leftovers.choose_removable(TOPIC, self.topics())
        transactions = self.transactions()
        ids = self.leftovers.choose_removable(TRANSACTIONAL_ID, (each.transactional_id for each in transactions))
        for each in transactions:
            is_in_topics = any(topic in topics for topic, _ in each.partitions)
            if each.state == "Ongoing" and (each.transactional_id in ids or is_in_topics):
                self.wire.abort(each)
        self.wire.remove_groups(self.leftovers.choose_removable(GROUP, self.wire.groups()))
        self.wire.delete_topics(topics)
        if self.is_steered:
            for hanging in self.leftovers.choose_removable(HANGING, self.hanging_transactions()):
                self.abort_hanging(hanging)  # in topics that are not deleted, such as internal ones
            self._forget_ids(ids)
        self.leftovers.forget_made()

    def _forget_ids(self, ids: Sequence[str]) -> None:
        if self.leftovers.keeps(TRANSACTIONAL_ID):
            for each in ids:
                self.admin().delete(f"/v1/transactional-ids/{quote_segment(each)}")
        else:
            self.admin().delete("/v1/transactional-ids")

    def describe(self, most_lines: int = 40) -> str:
        """Return a report for a failed test: the log since `begin`, the open transactions, the kept data directory."""
        lines = [f"{self.bootstrap}"]
        if self.process is not None:
            lines = [self.process.log_tail(self._log_from, most_lines) or "the broker has logged nothing"]
            lines += [f"its data directory is kept in {self.kept_dir()}"]
            if self.process.pid is None:
                return "\n".join([*lines, "the broker does not run"])
        return "\n".join(lines) + (self._open_lines() or "\nopen transactions: none")

    def kept_dir(self) -> Path:
        """Return the path where the data directory is kept if the running test fails."""
        return self._own().directory / f"kept-{self._journal_since}"

    @property
    def is_steered(self) -> bool:
        """Return whether the test can control the broker over its admin port."""
        return self.process is not None or self._admin is not None


def _known(each: Transaction) -> KnownTransaction:
    return KnownTransaction(
        *(each.transactional_id, -1, each.state, each.producer_id, each.producer_epoch, each.timeout_ms),
        *(each.start_ms, frozenset(each.partitions)),
    )


def _is_hanging(found: OpenProducer, known: Sequence[KnownTransaction]) -> bool:
    """Return whether no coordinator will end the transaction. Reads no clock: the remaining time does not matter."""
    opened = OpenTransaction(*found, last_timestamp_ms=-1)
    return judge(opened, known, 0, ()).standing.is_abandoned
