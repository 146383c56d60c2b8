"""Match markers and decisions although clocks differ: a slow one makes a marker older than its decision. pure

By the times in the log, each marker then matches the decision before its own, and the last decision of a sequence
seems to lack its marker. Clocks differ by about the same for a long time. So the module shifts the markers by the
difference that leaves the fewest markers and decisions without a partner.
"""

from collections.abc import Collection, Sequence

import numpy as np

from ottla.audit.checks import history, torn
from ottla.audit.checks.torn import Matched
from ottla.protocol.batch_header import TIMESTAMP_TYPE
from ottla.scan import events, headers
from ottla.scan.compiled.kernels import Longs
from ottla.verdict import SKEW_MS

_LIFE = [events.ENDED_PRODUCER_ID, events.ENDED_START_MS, events.ENDED_END_MS]
# At most this many markers of a partition are matched again.
MOST_MATCHED_AGAIN = 2_000_000


def find_doubtful_keys(decisions: Longs, ranges: Sequence[Matched]) -> Longs:
    """Return keys of producer and epoch that have a decision without a marker and a marker that fits no decision."""
    done = np.zeros(len(decisions), dtype=bool)
    for one in ranges:
        done[one.carried_out[:, 0]] = True
    lacking = decisions[~done]
    others = np.concatenate([np.empty((0, torn.MARKER_COLUMNS), dtype=np.int64), *(one.others for one in ranges)])
    if not (len(lacking) and len(others)):
        return np.empty(0, dtype=np.int64)
    return np.intersect1d(
        torn.keys(lacking[:, history.PRODUCER_ID], lacking[:, history.EPOCH]),
        torn.keys(others[:, torn.PRODUCER_ID], others[:, torn.EPOCH]),
    )


def matched_again(decisions: Longs, ranges: Sequence[Matched], markers: Longs) -> list[Matched]:
    """Return `ranges` with `markers` matched by the best shift: all markers of some producers and epochs, by offset."""
    chosen = np.unique(torn.keys(markers[:, torn.PRODUCER_ID], markers[:, torn.EPOCH]))
    of_decisions = torn.keys(decisions[:, history.PRODUCER_ID], decisions[:, history.EPOCH])
    of_markers = torn.keys(markers[:, torn.PRODUCER_ID], markers[:, torn.EPOCH])
    shifted = markers.copy()
    for key in chosen:
        mine = of_markers == key
        decided = decisions[of_decisions == key]
        shifted[mine, torn.END_MS] += best_shift(decided, markers[mine])
    matcher = torn.MarkerMatcher(decisions, 0)
    matcher.add(shifted)
    again = matcher.result()
    # Findings report the times that are in the log.
    stands = np.searchsorted(markers[:, torn.MARKER_OFFSET], again.others[:, torn.MARKER_OFFSET])
    again.others[:, torn.END_MS] = markers[stands, torn.END_MS]
    kept = []
    for one in ranges:
        others = one.others[~np.isin(torn.keys(one.others[:, torn.PRODUCER_ID], one.others[:, torn.EPOCH]), chosen)]
        carried = one.carried_out[~np.isin(of_decisions[one.carried_out[:, 0]], chosen)]
        kept.append(one._replace(carried_out=carried, others=others, others_count=len(others)))
    last = kept[-1]
    others = np.concatenate([last.others, again.others])
    kept[-1] = last._replace(
        carried_out=np.concatenate([last.carried_out, again.carried_out]),
        others=others[np.argsort(others[:, torn.MARKER_OFFSET], kind="stable")],
        others_count=len(last.others) + again.others_count,
    )
    return kept


def best_shift(decisions: Longs, markers: Longs) -> int:
    """Return the ms to add to the markers of one producer and epoch: 0 if no other shift fits better."""
    times, kinds = decisions[:, history.UPDATED_MS], decisions[:, history.KIND]
    best, fewest = 0, _misfits(times, kinds, markers, 0)
    for shift in _candidates(times, markers[:, torn.END_MS]):
        misfits = _misfits(times, kinds, markers, shift)
        if misfits < fewest:
            best, fewest = shift, misfits
    return best


def _candidates(times: Longs, ends: Longs) -> list[int]:
    """Return time differences between decisions and markers at about the same index, the smallest first."""
    found = {0}
    for ahead in range(-2, 3):
        first, first_end = max(ahead, 0), max(-ahead, 0)
        many = min(len(times) - first, len(ends) - first_end)
        if many <= 0:
            continue
        differences = times[first : first + many] - ends[first_end : first_end + many]
        for part in (differences, differences[:20], differences[-20:]):
            found.update(np.percentile(part, (50, 90, 100)).astype(np.int64).tolist())
    return sorted(one for one in found if 0 < one <= SKEW_MS)


def _misfits(times: Longs, kinds: Longs, markers: Longs, shift: int) -> int:
    """Return the number of decisions without a marker of their kind, plus the number of markers without a decision."""
    at = np.searchsorted(times, markers[:, torn.END_MS] + shift, side="right") - 1
    fits = (at >= 0) & (kinds[at] == markers[:, torn.FATE])
    return len(times) - len(np.unique(at[fits])) + int(np.count_nonzero(~fits))


def first_ms(rows: Longs, ended: Longs, longest_ms: int, lasting: Collection[int] = (), *, is_internal: bool) -> int:
    """Return the earliest time at which a partition is known to exist, by the first rows of a walk that show it, or -1.

    Producers may set any timestamp, such as the time of an event. The times that a broker sets are reliable: those of
    markers, of batches with LogAppendTime, and of internal topics. So is the start of a transaction that took no longer
    than `longest_ms`, the longest timeout of all ids, or that has a producer in `lasting`: it never timed out.
    """
    own = is_internal | (rows[:, headers.CONTROL_TYPE] != headers.NOT_CONTROL)
    own |= (rows[:, headers.ATTRIBUTES] & TIMESTAMP_TYPE) != 0
    found = rows[own][:1, headers.MAX_TIMESTAMP].tolist()
    for producer_id, start_ms, end_ms in ended[:1, _LIFE].tolist():
        if start_ms > 0 and (0 <= end_ms - start_ms <= longest_ms or (producer_id in lasting and end_ms >= start_ms)):
            found.append(start_ms)
    return min(found, default=-1)
