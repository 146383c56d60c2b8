"""Idle transactional ids and producers, which brokers are about to forget. pure

`transactional.id.expiration.ms`: a coordinator forgets an id that has no transaction for that long, and refuses a
later request of its producer with INVALID_PRODUCER_ID_MAPPING. `producer.id.expiration.ms`: a partition forgets the
sequences of a producer, and no longer detects its duplicates.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from ottla.audit.checks.finding import Finding
from ottla.audit.checks.history import ONGOING, PREPARED
from ottla.audit.checks.words import count
from ottla.protocol.internal_topics.transaction_records import TransactionValue
from ottla.protocol.times import at_time, duration
from ottla.protocol.values import TopicPartition
from ottla.scan import states
from ottla.scan.compiled.kernels import Longs

# "About to expire" is the last part of the expiration time.
SOON_SHARE = 0.1
MOST_REPORTED = 50


class Idle(NamedTuple):
    """Counts of one partition's producers without a transaction: all, idle beyond the limit, close to the limit."""

    producers: int = 0
    expired: int = 0
    soon: int = 0
    oldest_ms: int = -1


def idle_producers(rows: Longs, now_ms: int, expiration_ms: int) -> Idle:
    """Count idle producers in the states at the end of a partition. Producers from a snapshot count too."""
    times = rows[rows[:, states.FIRST_OFFSET] < 0][:, states.LAST_TIMESTAMP]
    if not len(times):
        return Idle()
    idle_ms = now_ms - times
    expired = idle_ms >= expiration_ms
    soon = (idle_ms >= expiration_ms * (1 - SOON_SHARE)) & ~expired
    return Idle(len(times), int(np.count_nonzero(expired)), int(np.count_nonzero(soon)), int(times.min()))


def findings(
    ids: Mapping[str, TransactionValue],
    producers: Iterable[tuple[TopicPartition, Idle]],
    now_ms: int,
    id_expiration_ms: int,
    producer_expiration_ms: int,
) -> list[Finding]:
    """Return information on ids, the longest idle first, and one finding for each partition that has idle producers."""
    found = _ids(ids, now_ms, id_expiration_ms)
    for place, idle in producers:
        if not idle.expired and not idle.soon:
            continue
        parts = [f"{idle.expired:,} idle beyond producer.id.expiration.ms ({duration(producer_expiration_ms)})"]
        if idle.soon:
            parts.append(f"{idle.soon:,} about to expire")
        message = f"of {count(idle.producers, 'producer')}, {' and '.join(parts)}; the longest since "
        message += at_time(idle.oldest_ms).removeprefix("at ")
        action = "a retry of such a producer would no longer be recognised as a duplicate"
        found.append(Finding("stale", "info", *place, None, None, None, message, action))
    return found


def _ids(ids: Mapping[str, TransactionValue], now_ms: int, expiration_ms: int) -> list[Finding]:
    silent = sorted(
        (value.last_update_ms, name)
        for name, value in ids.items()
        if value.status != ONGOING
        and value.status not in PREPARED
        and now_ms - value.last_update_ms >= expiration_ms * (1 - SOON_SHARE)
    )
    found = []
    for last_ms, name in silent[:MOST_REPORTED]:
        left_ms = last_ms + expiration_ms - now_ms
        when = f"expires in {duration(left_ms)}" if left_ms > 0 else "has expired"
        message = f"no transaction since {at_time(last_ms).removeprefix('at ')}; {when} ({duration(expiration_ms)})"
        action = "a producer that comes back must call initTransactions() first; nothing to do if it is gone"
        found.append(Finding("stale", "info", None, None, None, ids[name].producer_id, name, message, action))
    if len(silent) > MOST_REPORTED:
        more = count(len(silent) - MOST_REPORTED, "more transactional id")
        found.append(Finding("stale", "info", None, None, None, None, None, f"{more} like these", "nothing to do"))
    return found
