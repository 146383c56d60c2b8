"""Match markers again where clocks differ and the first match is in doubt, by another read in tasks. shell"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ottla.audit.ambiguous_ends import walk_again
from ottla.audit.checks import clocks, once, torn
from ottla.audit.checks.history import History
from ottla.audit.runner import run
from ottla.audit.tasks import RangeFacts, Work, task
from ottla.scan.compiled.kernels import Longs

if TYPE_CHECKING:
    from ottla.audit.runner import Runner


def match_again(
    runner: "Runner", works: Sequence[Work], facts: Mapping[int, Sequence[RangeFacts]], known: History
) -> dict[int, list[RangeFacts]]:
    """Return `facts`, with markers matched again where clocks may explain a mismatch. Raises AuditFailed."""
    found = {index: list(parts) for index, parts in facts.items()}
    decisions, doubts = {}, {}
    for work in works:
        index = work.part.partition
        if index not in decisions:
            decisions[index] = known.for_place((work.part.topic, work.part.number))
            keys = clocks.find_doubtful_keys(decisions[index], [part.matched for part in facts[index]])
            if len(keys):
                doubts[index] = keys
    todo = [work._replace(numbers=doubts[work.part.partition]) for work in works if work.part.partition in doubts]
    rows: dict[int, list[Longs]] = {}
    for result in run(runner, look_up, todo, "comparing clocks") if todo else []:
        assert isinstance(result.value, np.ndarray)
        rows.setdefault(result.partition, []).append(result.value)
    for index, parts in rows.items():
        markers = np.concatenate(parts)
        if len(markers) <= clocks.MOST_MATCHED_AGAIN:
            ranges = [part.matched for part in found[index]]
            matched = clocks.matched_again(decisions[index], ranges, markers)
            found[index] = [
                part._replace(matched=one, shared=once.without(part.shared, doubts[index]))
                for part, one in zip(found[index], matched, strict=True)
            ]
    return found


@task
def look_up(work: Work) -> Longs:
    """Return the markers of the producers and epochs in `work.numbers`, as rows of the marker columns."""
    chosen = work.numbers
    assert chosen is not None
    found = [np.empty((0, torn.MARKER_COLUMNS), dtype=np.int64)]
    for step in walk_again(work):
        markers = torn.markers(step.ended)
        found.append(markers[np.isin(torn.keys(markers[:, torn.PRODUCER_ID], markers[:, torn.EPOCH]), chosen)])
    return np.concatenate(found)
