"""Match the regular expressions of consumer groups against the topics of the cluster, in another thread. shell

A resolution is started by a heartbeat, which does not wait for it. Its result is logged as a batch of its own. Names
are matched in shares, and only one share of all groups is in work at a time, so that neither an expensive expression
nor many topics delay other work of the threads.

Source: `TopicRegexResolver` and `GroupMetadataManager` (`handleRegularExpressionsResult`) of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.cluster.metadata import Cluster
from ottla.broker.costs import AUTHORIZE_US, LOOKUP_US, PATTERN_BYTE_US, PATTERN_CALL_US
from ottla.broker.group.consumer.consumer_group import ConsumerGroup, count_epochs
from ottla.broker.group.consumer.decisions import Heartbeat
from ottla.broker.group.consumer.regular_expressions import (
    LONGEST_NAME,
    MIN_REFRESH_MS,
    compile_regex,
    decide_resolution,
)
from ottla.broker.group.consumer.topics import FindTopic
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.log.long_work import LongWork
from ottla.broker.log_limiter import LogLimiter, describe_repeats
from ottla.broker.pattern import Pattern, PatternError
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.workers import Workers
from ottla.broker.turns import Activity, Gate, Turns
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.consumer_group_records import ResolvedRegularExpression
from ottla.protocol.steps import Steps, Work

log = logging.getLogger(__name__)

SHARE_US: Final = 5_000.0
"""The longest that the match of one share of the names may take."""

ASSIGNED_BYTES: Final = 48
"""What a topic counts in addition to its name: about its part of a target and of a current assignment."""

MayDescribe = Callable[[str], bool]
"""Return whether the client that sent the heartbeat may describe a topic."""


class TopicRegexResolver:
    """The resolutions of all groups of one broker."""

    def __init__(
        self,
        manager: GroupMetadataManager,
        cluster: Cluster,
        turns: Turns,
        clock: Clock,
        workers: Workers,
        find_topic: FindTopic,
    ) -> None:
        self._manager = manager
        self._cluster = cluster
        self._turns = turns
        self._clock = clock
        self._find_topic = find_topic
        self._work = LongWork(turns, workers, 0)
        self._gate = Gate()
        self._created_topics = -1
        self._newest_topics = -1
        self._running: set[Activity[None]] = set()
        self._logs_missing_package = LogLimiter()
        self.rebalances = 0
        """The number of group epochs that resolutions have begun since the start."""

    def log_missing_package(self, beat: Heartbeat) -> None:
        """Log that a member is refused, because expressions cannot be matched. Repeats are only counted."""
        if count := self._logs_missing_package.count("", self._clock.monotonic_ms()):
            log.warning(
                "Group %(group).100s: member %(member).100s from %(host)s is refused, because regular expressions of "
                "consumer groups need the Python package google-re2, which is not installed%(repeats)s",
                {
                    "group": beat.group_id,
                    "member": beat.member_id,
                    "host": beat.client_host,
                    "repeats": describe_repeats(count),
                },
            )

    @property
    def newest_topics(self) -> int:
        """The version of the cluster's metadata that has the topics that were created last, or the first version that
        this broker saw."""
        created = self._cluster.image.created_topics
        if created != self._created_topics:
            self._created_topics, self._newest_topics = created, self._version
        return self._newest_topics

    @property
    def _version(self) -> int:
        return self._cluster.metadata_log.end_offset - 1

    def stop(self) -> None:
        """Discard the resolutions in progress."""
        for activity in self._running:
            activity.discard()
        self._running.clear()

    def start(self, group: ConsumerGroup, regexes: Sequence[str], may_describe: MayDescribe, most_bytes: int) -> None:
        """Resolve the expressions of a group, from a later turn on. Their topics may need `most_bytes` in all."""
        group.is_resolving = True

        def end() -> None:
            group.is_resolving = False
            if activity is not None:
                self._running.discard(activity)

        def on_bug(error: Exception) -> None:
            end()
            raise error

        activity: Activity[None] | None = None

        def begin() -> None:
            nonlocal activity
            activity = self._turns.start(
                self._resolve(group, regexes, may_describe, most_bytes), lambda _: end(), on_bug
            )
            if activity is not None:
                self._running.add(activity)

        self._turns.run_later(begin)

    async def _resolve(
        self, group: ConsumerGroup, regexes: Sequence[str], may_describe: MayDescribe, most_bytes: int
    ) -> None:
        _, version = self.newest_topics, self._version
        began_ms = self._clock.now_ms()
        metadata, _ = self._manager.find(group.group_id)
        if metadata is None or metadata.group is not group:
            return
        problem = ""
        try:
            topics = await self._match_all(regexes, may_describe, most_bytes)
        except PatternError as error:
            problem = str(error)
        else:
            log.info(
                "Group %(group).100s: its regular expressions match %(matched)d of %(count)d topics",
                {
                    "group": group.group_id,
                    "matched": sum(map(len, topics.values())),
                    "count": len(self._cluster.topics),
                },
            )
            resolved = {regex: ResolvedRegularExpression(names, version, began_ms) for regex, names in topics.items()}
            refused = await self._work.drive(self._take_over(group, resolved), gate=group.gate)
            if refused:
                problem = f"the matched topics could not be logged ({refused.name})"
        if problem:
            group.resolve_after_ms = self._clock.now_ms() + MIN_REFRESH_MS
            log.warning(
                "Group %(group).100s: the topics of its regular expressions stay as they are, because %(problem)s",
                {"group": group.group_id, "problem": problem},
            )

    async def _match_all(
        self, regexes: Sequence[str], may_describe: MayDescribe, most_bytes: int
    ) -> dict[str, tuple[str, ...]]:
        """Return the topics of each expression. Raises PatternError if one cannot be compiled, which Kafka accepted, or
        if the topics need more than `most_bytes`."""
        names = tuple(self._cluster.topics)
        found: dict[str, tuple[str, ...]] = {}
        size_bytes = 0
        for regex in regexes:
            await self._turns.spend(PATTERN_BYTE_US * len(regex))
            pattern = compile_regex(regex)
            topics: list[str] = []
            at_once = max(1, int(SHARE_US / (PATTERN_CALL_US + pattern.cost_us(LONGEST_NAME))))
            for start in range(0, len(names), at_once):
                some = names[start : start + at_once]
                matched = await self._work.drive(_match(pattern, some), gate=self._gate)
                visible = [name for name in matched if may_describe(name)]
                topics += visible
                size_bytes += sum(map(len, visible)) + ASSIGNED_BYTES * len(visible)
                if size_bytes > most_bytes:
                    raise PatternError(
                        f"the topics that they match need more than {most_bytes} bytes; narrow the expressions, or "
                        "raise group.member.max.metadata.bytes"
                    )
                await self._turns.spend(LOOKUP_US * len(some) + AUTHORIZE_US * len(matched))
            found[regex] = tuple(topics)
        return found

    def _take_over(self, group: ConsumerGroup, resolved: dict[str, ResolvedRegularExpression]) -> Steps[ErrorCode]:
        """Log and apply the resolved expressions of a group that still exists."""
        while True:
            metadata, error = self._manager.find(group.group_id)
            if error or metadata is None or metadata.group is not group:
                return error
            topics_version = self._cluster.metadata_log.end_offset
            records = yield from decide_resolution(group, resolved, self._find_topic)
            if records is None or self._manager.find(group.group_id) != (metadata, ErrorCode.NONE):
                continue
            if not records:
                return ErrorCode.NONE
            error = self._manager.log_consumer_group(metadata.shard, records)
            if not error:
                group.topics_version = topics_version
                self.rebalances += count_epochs(records)
            return error


def _match(pattern: Pattern, names: Sequence[str]) -> Steps[list[str]]:
    """Return the names that match. RE2 releases the interpreter lock at each name."""
    found: list[str] = yield Work(lambda: [name for name in names if pattern.matches(name)], SHARE_US, 0)
    return found
