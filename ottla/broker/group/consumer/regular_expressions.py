"""Regular expressions of a consumer group: which are accepted, when they are resolved, and what that changes. pure

The topics that an expression matches are found after the heartbeat that brings it (`topic_regex_resolver.py`). Until
then it matches none. All expressions of a group are resolved together, at most every ten seconds, so that the group
rebalances once.

Source: `GroupMetadataManager` (`maybeUpdateRegularExpressions`, `handleRegularExpressionsResult`) of Kafka 4.3.1.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Final

from ottla.broker.group.consumer.consumer_group import ConsumerGroup, Record
from ottla.broker.group.consumer.topics import FindTopic, compute_metadata_hash
from ottla.broker.pattern import AVAILABLE, MAX_MATCH_US, Pattern, PatternError, compile_pattern
from ottla.protocol.internal_topics.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupMetadata,
    ConsumerGroupRecordType,
    ResolvedRegularExpression,
)
from ottla.protocol.steps import Steps

MIN_REFRESH_MS: Final = 10_000
"""The least time between two resolutions of a group's expressions (`REGEX_BATCH_REFRESH_MIN_INTERVAL_MS`)."""
LONGEST_NAME: Final = "t" * 249
"""A topic name of the largest length."""


def find_fault(group: ConsumerGroup, regex: str, most_bytes: int) -> str:
    """Return why a group cannot take a new expression; empty if it can.

    `most_bytes` limits the bytes of all expressions of the group, because each is matched against all topics.
    """
    if not AVAILABLE:
        return (
            "The broker reads no regular expressions, because its Python package google-re2 is not installed. "
            "Subscribe to names of topics, or install the package on the broker."
        )
    size_bytes = sum(len(each.encode()) for each in (*group.regex_subscribers, regex))
    if size_bytes > most_bytes:
        return f"The regular expressions of the group exceed {most_bytes} bytes (group.member.max.metadata.bytes)."
    try:
        compile_regex(regex)
    except PatternError as error:
        return f"SubscribedTopicRegex `{regex:.1024}` is not a valid regular expression: {error}."
    return ""


def compile_regex(regex: str) -> Pattern:
    """Compile an expression that is matched against names of topics. Raises PatternError."""
    pattern = compile_pattern(regex)
    if pattern.cost_us(LONGEST_NAME) > MAX_MATCH_US:
        raise PatternError("the expression is too large to be matched against names of topics")
    return pattern


def must_resolve(
    group: ConsumerGroup, regexes: Set[str], newest_topics: int, refresh_interval_ms: int, now_ms: int
) -> bool:
    """Return whether the expressions of a group must be resolved: one is not, topics are newer, or time has passed.

    `regexes` are those of the group after the heartbeat, `newest_topics` is the version of the cluster's metadata that
    has the topics that were created last.
    """
    if not regexes or group.is_resolving or now_ms < group.resolve_after_ms:
        return False
    last = next(iter(group.regexes.values()), None)  # they are always resolved together
    if last is None:
        return True
    if now_ms <= last.timestamp_ms + MIN_REFRESH_MS:
        return False
    return (
        group.regexes.keys() != regexes
        or last.metadata_version < newest_topics
        or now_ms > last.timestamp_ms + refresh_interval_ms
    )


def decide_resolution(
    group: ConsumerGroup, resolved: Mapping[str, ResolvedRegularExpression], find_topic: FindTopic
) -> Steps[Sequence[Record] | None]:
    """Return the records of resolved expressions. A group epoch begins if they match other topics than before.

    Return None if the group has changed between the steps.
    """
    version = group.version
    kept = {regex: value for regex, value in resolved.items() if group.regex_subscribers[regex]}
    records: list[Record] = [regex_record(group, regex, value) for regex, value in kept.items()]
    metadata_hash = yield from compute_metadata_hash(_subscribed_topics(group, kept), find_topic)
    if group.version != version:
        return None
    has_changed = any(not group.has_matched(regex, value.topics) for regex, value in kept.items())
    if has_changed or metadata_hash != group.metadata_hash:
        bump = ConsumerGroupMetadata(group.epoch + 1, metadata_hash)
        records.append((ConsumerGroupKey(ConsumerGroupRecordType.METADATA, group.group_id), bump))
    return records


def regex_record(group: ConsumerGroup, regex: str, value: ResolvedRegularExpression | None) -> Record:
    """Return the record of a resolved expression, or its tombstone."""
    return ConsumerGroupKey(ConsumerGroupRecordType.REGULAR_EXPRESSION, group.group_id, regex), value


def _subscribed_topics(group: ConsumerGroup, resolved: Mapping[str, ResolvedRegularExpression]) -> Iterator[str]:
    """Return the topics that members name, and those of the expressions. A topic may occur twice."""
    matched = ({**group.regexes, **resolved}).values()
    return chain(group.topic_subscribers, *(value.topics for value in matched))
