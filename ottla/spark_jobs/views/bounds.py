"""Bounds of a query, which save reading: from Spark's filters that compare a column with literals. pure

A bound only leaves out rows that cannot match: Spark applies its filters again to the returned rows.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ottla.scan import schemas

_LEAST, _MOST = -(2**63), 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Span(NamedTuple):
    """Integers in [low, end), and in `values` unless that is None."""

    low: int = _LEAST
    end: int = _MOST
    values: frozenset[int] | None = None

    def __contains__(self, number: object) -> bool:
        assert isinstance(number, int)
        return self.low <= number < self.end and (self.values is None or number in self.values)

    def narrow(self, comparison: str, value: Any) -> "Span":
        """Narrow the span. `comparison` is the name of a filter class of pyspark; an unknown one narrows nothing."""
        if comparison in ("EqualTo", "EqualNullSafe", "In"):
            values = frozenset(value if comparison == "In" else (value,))
            return self._replace(values=values if self.values is None else self.values & values)
        if comparison in ("GreaterThan", "GreaterThanOrEqual"):
            return self._replace(low=max(self.low, value + (comparison == "GreaterThan")))
        if comparison in ("LessThan", "LessThanOrEqual"):
            return self._replace(end=min(self.end, value + (comparison == "LessThanOrEqual")))
        return self

    @property
    def first(self) -> int:
        """Lower bound of the numbers in the span."""
        return max(self.low, min(self.values)) if self.values else self.low

    @property
    def last_end(self) -> int:
        """Exclusive upper bound of the numbers in the span."""
        return min(self.end, max(self.values) + 1) if self.values else self.end


class Bounds(NamedTuple):
    """The filters of one query. `topics`: only these; `prefix`: the beginning of the topic's name; times in ms."""

    topics: frozenset[str] | None = None
    prefix: str = ""
    partition: Span = Span()
    segment: Span = Span()
    offset: Span = Span()
    time_ms: Span = Span()
    producer_id: Span = Span()

    def allows(self, topic: str, partition: int) -> bool:
        """Return whether the partition can have rows."""
        return (
            (self.topics is None or topic in self.topics)
            and topic.startswith(self.prefix)
            and partition in self.partition
        )


UNBOUNDED = Bounds()

_PLACE = {"topic": "topic", "partition": "partition"}
# View -> column -> the bound that it narrows. A batch or segment that overlaps with the bounds is read.
_ROLES: dict[str, dict[str, str]] = {
    schemas.RECORDS: {
        "segment": "segment",
        "offset": "offset",
        "timestamp": "time_ms",
        "producerId": "producer_id",
    },
    schemas.BATCHES: {
        "segment": "segment",
        "baseOffset": "offset",
        "lastOffset": "offset",
        "maxTimestamp": "time_ms",
        "producerId": "producer_id",
    },
    schemas.SEGMENTS: {"segment": "segment", "firstOffset": "offset", "lastOffset": "offset"},
    schemas.DAMAGE: {"segment": "segment"},
}


def narrow(bounds: Bounds, view: str, filters: Iterable[Any]) -> Bounds:
    """Narrow `bounds` by pyspark's `filters` (EqualTo, In, GreaterThan, ...) on columns of `view` that save reading."""
    roles = _PLACE | _ROLES.get(view, {})
    for one in filters:
        column: tuple[str, ...] = getattr(one, "attribute", ())
        role = roles.get(".".join(column))
        value = getattr(one, "value", None)
        if role is not None and value is not None:
            bounds = _narrow(bounds, role, type(one).__name__, value)
    return bounds


def _narrow(bounds: Bounds, role: str, comparison: str, value: Any) -> Bounds:
    if comparison == "In":
        value = [each for each in value if each is not None]
    if role == "topic":
        if comparison == "StringStartsWith":
            return bounds._replace(prefix=max(bounds.prefix, value, key=len))
        if comparison not in ("EqualTo", "EqualNullSafe", "In"):
            return bounds
        topics = frozenset(value if comparison == "In" else (value,))
        return bounds._replace(topics=topics if bounds.topics is None else bounds.topics & topics)
    if role == "time_ms":
        times = [_milliseconds(each) for each in (value if comparison == "In" else (value,))]
        # Stored times have milliseconds, a literal has microseconds, so only lower bounds are used, rounded down.
        if times and comparison in ("EqualTo", "EqualNullSafe", "In", "GreaterThan", "GreaterThanOrEqual"):
            return bounds._replace(time_ms=bounds.time_ms.narrow("GreaterThanOrEqual", min(times)))
        return bounds
    return bounds._replace(**{role: getattr(bounds, role).narrow(comparison, value)})


def _milliseconds(moment: datetime) -> int:
    """Return milliseconds. Spark passes times without a time zone, which are in the local zone of the worker."""
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
