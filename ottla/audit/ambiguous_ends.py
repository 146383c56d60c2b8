"""Find torn transactions without a known decision: tasks number markers, and look up conflicting ones. shell"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.audit.checks import across
from ottla.audit.checks.across import Marker
from ottla.audit.checks.finding import Finding
from ottla.audit.checks.words import count
from ottla.audit.runner import run
from ottla.audit.tasks import RangeFacts, Work, entry_states, task, walk
from ottla.scan.damage_log import REPORT, DamageLog
from ottla.scan.fates import open_of

if TYPE_CHECKING:
    from ottla.audit.runner import Runner
    from ottla.scan.walk import Walk


class AmbiguousEnds(NamedTuple):
    """Markers that were looked up, and findings without a place."""

    markers: Sequence[Marker] = ()
    findings: Sequence[Finding] = ()


def find_ambiguous_ends(
    runner: "Runner",
    works: Sequence[Work],
    facts: Mapping[int, Sequence[RangeFacts]],
    earlier: Mapping[int, RangeFacts],
) -> AmbiguousEnds:
    """Compare the markers of transactions without a known decision across partitions. Raises AuditFailed.

    `earlier`: the facts of an earlier audit, whose records are not read again.
    """
    import numpy as np

    every = [[earlier[index], *parts] if index in earlier else parts for index, parts in facts.items()]
    opened = [open_of(row) for parts in every if parts for row in parts[-1].open_rows]
    numbers, left_out = across.find_ambiguous((part.ends for parts in every for part in parts), opened)
    found = []
    if left_out:
        text = f"torn: {count(left_out, 'more transaction')} with COMMIT in some partitions and ABORT in others"
        found.append(Finding("torn", "error", None, None, None, None, None, text, "see the findings on the others"))
    if not len(numbers):
        return AmbiguousEnds((), found)
    todo = []
    for work in works:
        mine = np.intersect1d(across.unpack(facts[work.part.partition][work.part.ordinal].ends), numbers)
        if len(mine):
            todo.append(work._replace(numbers=mine))
    markers: list[Marker] = []
    for result in run(runner, look_up, todo, "looking up markers"):
        assert isinstance(result.value, list)
        markers += result.value
    return AmbiguousEnds(markers, found)


@task
def look_up(work: Work) -> list[Marker]:
    """Return the markers in the range that `work.numbers` name."""
    numbers = work.numbers
    assert numbers is not None
    return [
        marker for step in walk_again(work) for marker in across.find_markers(work.part.partition, step.ended, numbers)
    ]


def walk_again(work: Work) -> "Walk":
    """Return a second walk over a range, which reads only the headers."""
    return walk(work, entry_states(work), DamageLog(REPORT))
