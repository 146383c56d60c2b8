"""Requests of `ottla top` to a cluster, with a bound on the cost of one poll. shell

One poll requests the open transactions and the groups of each broker, and the ends of at most `MOST_PARTITIONS`
partitions of their leaders. Partitions that held readers back in the last poll are first, then those of open
transactions and of groups, then others in turn, so that all are polled in time. Partitions left out are counted.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from ottla.cli.top.picture import (
    Ends,
    GroupLag,
    HeldBack,
    LeftOut,
    ListedGroup,
    Picture,
    by_pain,
    group_lag,
    held_back,
    ongoing,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.protocol.values import TopicPartition
from ottla.verdict import OPEN_STATES, KnownTransaction, OpenTransaction, Standing, Verdict, judge_time
from ottla.wire import Unanswered
from ottla.wire.brokers import Address
from ottla.wire.cluster import GROUPS_AT_ONCE, READ_COMMITTED, READ_UNCOMMITTED, Cluster
from ottla.wire.judge_open import judge_open
from ottla.wire.login import PLAINTEXT, SecurityOptions, error_name
from ottla.wire.topology import Topology, by_leader, chunks

MOST_TRANSACTIONS: Final = 500
MOST_PARTITIONS: Final = 2_000
MOST_HELD_BACK: Final = 200
MOST_GROUPS: Final = 100
OLDER_MS: Final = (10_000, 60_000, 600_000, 3_600_000)
"""Minimum ages to request, one after the other, until the number of open transactions is small enough."""

_CONSUMER: Final = "consumer"
"""Type of a group of the consumer protocol."""

_T = TypeVar("_T")
_Committed = tuple[ListedGroup, list[tuple[TopicPartition, int]]]


class Watch(Cluster):
    """A cluster that is polled repeatedly."""

    def __init__(self, bootstrap: Sequence[Address], timeout_s: float, security: SecurityOptions = PLAINTEXT) -> None:
        super().__init__(bootstrap, timeout_s, security)
        self._held_since_ms: dict[tuple[TopicPartition, int], int] = {}
        self._next_partition = self._next_group = 0
        self._lagging: list[str] = []
        # Brokers that let a request of this poll time out, with the error.
        self._silent: dict[Address, str] = {}

    def poll(self) -> Picture:
        """Poll the cluster. Raises Unanswered if no broker returns the metadata; other silent brokers are in `gaps`."""
        gaps: list[str] = []
        left_out: list[LeftOut] = []
        self._silent.clear()
        topology = self.topology()
        known, count = self._known_open(topology, gaps)
        if count > len(known):
            left_out.append(LeftOut("transactions", len(known), count))
        committed = self._fetch_commits(topology, gaps, left_out)
        touched = [place for each in known for place in each.partitions]
        touched += [place for _, offsets in committed for place, _ in offsets]
        ends = self._ends(topology, touched, gaps, left_out)
        now_ms = round(time.time() * 1000)
        overdue = self._overdue(known, now_ms, gaps)
        groups = [group_lag(group, offsets, ends) for group, offsets in committed]
        self._remember_lagging(groups)
        return by_pain(
            Picture(
                now_ms,
                [ongoing(each, now_ms, each.transactional_id in overdue) for each in known],
                self._held_back(ends, now_ms, gaps, left_out),
                groups,
                left_out,
                gaps,
            )
        )

    def ask(self, address: Address, message: Any, version: int | None = None) -> Any:
        """Send a request. A broker without an answer gets no other request in the same poll."""
        if address in self._silent:
            raise Unanswered(self._silent[address])
        began_s = time.monotonic()
        try:
            return super().ask(address, message, version)
        except Unanswered as error:
            if time.monotonic() - began_s >= self._timeout_s:
                self._silent[address] = str(error)
            raise

    # --- transactions

    def _known_open(self, topology: Topology, gaps: list[str]) -> tuple[list[KnownTransaction], int]:
        """Return the open transactions, or the oldest ones if the number is too large, and the number of all."""
        known: list[KnownTransaction] = []
        count = 0
        for broker, address in sorted(topology.brokers.items()):
            try:
                total, ids = self._open_ids(broker, address)
                known += self.describe(broker, address, ids[: MOST_TRANSACTIONS - len(known)])
            except Unanswered as error:
                gaps.append(str(error))
            else:
                count += total
        known = [each for each in known if each.state in OPEN_STATES]
        return known, max(count, len(known)) if count > MOST_TRANSACTIONS else len(known)

    def _overdue(self, known: Sequence[KnownTransaction], now_ms: int, gaps: list[str]) -> set[str]:
        late = [each for each in known if judge_time(each, now_ms).standing is Standing.OVERDUE]
        try:
            return self.overdue_ids(late)
        except Unanswered as error:
            gaps.append(str(error))
            return set()

    def _open_ids(self, broker: int, address: Address) -> tuple[int, list[str]]:
        found = self.list_ids(broker, address)
        total = len(found)
        for older_ms in OLDER_MS if self._serves(address, ApiKey.LIST_TRANSACTIONS) >= 1 else ():
            if len(found) <= MOST_TRANSACTIONS:
                break
            older = self.list_ids(broker, address, duration_filter=older_ms)
            if not older:
                break
            found = older
        return total, found

    # --- partitions

    def _ends(
        self, topology: Topology, touched: Iterable[TopicPartition], gaps: list[str], left_out: list[LeftOut]
    ) -> dict[TopicPartition, Ends]:
        everywhere = [(name, number) for name in sorted(topology.topics) for number in sorted(topology.topics[name])]
        there = set(everywhere)
        first = [place for place, _ in self._held_since_ms]
        candidates = dict.fromkeys(place for place in (*first, *touched) if place in there)
        chosen = dict.fromkeys(islice(candidates, MOST_PARTITIONS * 3 // 4))
        rest = [place for place in everywhere if place not in chosen]
        some, self._next_partition = _in_turn(rest, self._next_partition, MOST_PARTITIONS - len(chosen))
        chosen.update(dict.fromkeys(some))
        if len(chosen) < len(everywhere):
            left_out.append(LeftOut("partitions", len(chosen), len(everywhere)))
        # In this order, so that records committed in between do not count as held back.
        ends = self._list_offsets(topology, list(chosen), READ_UNCOMMITTED, gaps)
        stable = self._list_offsets(topology, list(chosen), READ_COMMITTED, gaps)
        return {place: Ends(min(offset, stable[place]), offset) for place, offset in ends.items() if place in stable}

    def _list_offsets(
        self, topology: Topology, places: Sequence[TopicPartition], isolation: int, gaps: list[str]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for leader, batch in by_leader(topology, places):
            if leader is None:
                continue
            try:
                rows = list(self.list_offsets(topology.brokers[leader], batch, isolation))
            except Unanswered as error:
                gaps.append(str(error))
            else:
                found |= {place: row.offset for place, row in rows if not row.error_code}
        return found

    def _held_back(
        self, ends: dict[TopicPartition, Ends], now_ms: int, gaps: list[str], left_out: list[LeftOut]
    ) -> list[HeldBack]:
        held = {place: each for place, each in ends.items() if each.last_stable_offset < each.high_watermark}
        since = self._held_since_ms
        self._held_since_ms = {
            (place, each.last_stable_offset): since.get((place, each.last_stable_offset), now_ms)
            for place, each in held.items()
        }
        # If the number is too large, take the partitions that are held back longest.
        chosen = sorted(held, key=lambda place: self._held_since_ms[place, held[place].last_stable_offset])
        if len(chosen) > MOST_HELD_BACK:
            left_out.append(LeftOut("partitions that hold back", MOST_HELD_BACK, len(chosen)))
            del chosen[MOST_HELD_BACK:]
        pinning, is_whole = self._pinning(chosen, gaps)
        return [
            held_back(
                place,
                held[place],
                pinning.get(place),
                self._held_since_ms[place, held[place].last_stable_offset],
                now_ms,
            )
            for place in chosen
            if place in pinning or not is_whole  # else it has ended meanwhile
        ]

    def _pinning(
        self, places: Sequence[TopicPartition], gaps: list[str]
    ) -> tuple[dict[TopicPartition, tuple[OpenTransaction, Verdict]], bool]:
        """Return the first open transaction in each of these partitions, and whether all of them answered."""
        if not places:
            return {}, True
        try:
            opened, unheard = self.open_transactions(places)
            first: dict[TopicPartition, OpenTransaction] = {}
            for each in sorted(opened, key=lambda each: each.start_offset):
                first.setdefault(each.place, each)
            rows, _, unsure, _ = judge_open(self, list(first.values()))
        except Unanswered as error:
            gaps.append(str(error))
            return {}, False
        gaps += [*unheard, *unsure]
        return {each.place: (each, verdict) for each, verdict in rows}, not unheard and not unsure

    # --- groups

    def _fetch_commits(self, topology: Topology, gaps: list[str], left_out: list[LeftOut]) -> list[_Committed]:
        """Return some groups with their committed offsets: the groups with the largest lag, and others in turn."""
        groups: dict[str, ListedGroup] = {}
        for broker, address in sorted(topology.brokers.items()):
            try:
                rows = self.list_groups(broker, address)
            except Unanswered as error:
                gaps.append(str(error))
            else:
                for row in rows:
                    if row.protocol_type in ("", "consumer"):
                        kind, state = (str(getattr(row, name, None) or "-") for name in ("group_type", "group_state"))
                        groups[row.group_id] = ListedGroup(row.group_id, kind, state, None, None, broker)
        first = [group_id for group_id in self._lagging if group_id in groups]
        rest = sorted(groups.keys() - set(first))
        some, self._next_group = _in_turn(rest, self._next_group, MOST_GROUPS - len(first))
        chosen = [groups[group_id] for group_id in (*first, *some)]
        if len(chosen) < len(groups):
            left_out.append(LeftOut("groups", len(chosen), len(groups)))
        found: list[_Committed] = []
        for broker, address in sorted(topology.brokers.items()):
            of_broker = self._with_epochs(address, [each for each in chosen if each.coordinator == broker], gaps)
            try:
                found += self._offsets_of(address, of_broker)
            except Unanswered as error:
                gaps.append(str(error))
        return found

    def _with_epochs(self, address: Address, groups: Sequence[ListedGroup], gaps: list[str]) -> list[ListedGroup]:
        """Return the groups of a broker, and describe those of the consumer protocol: their epochs and state."""
        described = {group.group_id: group for group in groups}
        ids = [group.group_id for group in groups if group.type.casefold() == _CONSUMER]
        request = codec.request_class(ApiKey.CONSUMER_GROUP_DESCRIBE)
        try:
            for some in chunks(ids, GROUPS_AT_ONCE):
                for row in self.ask(address, request(group_ids=some)).groups:
                    if row.group_id in described:
                        described[row.group_id] = _with_epoch(described[row.group_id], row, gaps)
        except Unanswered as error:
            gaps.append(str(error))
        return [*described.values()]

    def _offsets_of(self, address: Address, groups: Sequence[ListedGroup]) -> Iterator[_Committed]:
        by_id = {group.group_id: group for group in groups}
        for group_id, error, topics in self.fetch_offsets(address, list(by_id)):
            if not error:
                yield by_id[group_id], _offsets(topics)

    def _remember_lagging(self, groups: Sequence[GroupLag]) -> None:
        worst = sorted((each for each in groups if each.lag), key=lambda each: -each.lag)
        self._lagging = [each.group_id for each in worst[: MOST_GROUPS // 2]]


def _with_epoch(group: ListedGroup, row: Any, gaps: list[str]) -> ListedGroup:
    """Return the group as described, without epochs if it has ended or changed its type meanwhile."""
    if not row.error_code:
        return group._replace(state=row.group_state, epoch=row.group_epoch, assignment_epoch=row.assignment_epoch)
    if row.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        gaps.append(f"broker {group.coordinator} does not describe groups: {error_name(row.error_code)}")
    return group


def _offsets(topics: Any) -> list[tuple[TopicPartition, int]]:
    return [
        ((topic.name, row.partition_index), row.committed_offset)
        for topic in topics
        for row in topic.partitions
        if row.committed_offset >= 0 and not row.error_code
    ]


def _in_turn(items: Sequence[_T], at: int, most: int) -> tuple[list[_T], int]:
    """Return `most` items from index `at` on, continuing at the beginning, and the index after them."""
    if len(items) <= most:
        return list(items), 0
    at %= len(items)
    chosen = [*items[at : at + most], *items[: max(0, at + most - len(items))]]
    return chosen, (at + most) % len(items)
