"""Runner of the tasks of an audit as tasks of Spark. shell"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.audit.runner import TASK_BYTES, Function, Naming
from ottla.audit.tasks import Result, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.scan.compiled.kernels import Longs
    from ottla.scan.ranges import LogRange

T = TypeVar("T")


class OfRange(Protocol):
    """Work on one range."""

    @property
    def part(self) -> "LogRange": ...


W = TypeVar("W", bound=OfRange)


class SparkRunner:
    """Runner over an RDD of groups of work.

    A task receives only its own group, costs half as much to start as mapInArrow, and needs no pandas. Spark shows its
    own progress.
    """

    def __init__(self, spark: "SparkSession") -> None:
        self._context = spark.sparkContext

    @property
    def parallelism(self) -> int:
        return int(self._context.defaultParallelism)

    def run(self, function: Function, works: Sequence[Work], label: str) -> list[Result]:
        groups = group_works(works, self.parallelism)
        if not groups:
            return []
        self._context.setJobDescription(label)
        tasks = self._context.parallelize(groups, len(groups))
        results: list[Result] = tasks.flatMap(_each(function)).collect()
        return results

    def reduce(
        self, function: Naming, combine: "Callable[[Sequence[Longs]], T]", works: Sequence[Work], label: str
    ) -> tuple[list[T], list[Result]]:
        groups = group_works(works, self.parallelism)
        if not groups:
            return [], []
        self._context.setJobDescription(label)
        buckets = 4 * self.parallelism
        tasks = self._context.parallelize(groups, len(groups)).flatMap(_in_buckets(function, buckets))
        done = tasks.groupByKey(buckets).mapValues(_make_combiner(combine)).collect()
        return [one for _, (one, _) in done if one is not None], [result for _, (_, told) in done for result in told]


def group_works(works: Sequence[W], parallelism: int) -> list[list[W]]:
    """Group work into tasks of about equal size: one for each core if there is little, never much above TASK_BYTES."""
    total = sum(work.part.cost_bytes for work in works)
    target = min(TASK_BYTES, -(-total // parallelism))
    groups: list[list[W]] = []
    room = 0
    for work in sorted(works, key=lambda work: -work.part.cost_bytes):
        if not groups or work.part.cost_bytes > room:
            groups.append([])
            room = target
        groups[-1].append(work)
        room -= work.part.cost_bytes
    return groups


def _in_buckets(function: Naming, buckets: int) -> "Callable[[Sequence[Work]], Iterator[tuple[int, Longs | Result]]]":
    def run(works: Sequence[Work]) -> "Iterator[tuple[int, Longs | Result]]":
        for work in works:
            rows, result = function(work)
            bucket = rows[:, 0] % buckets
            for one in set(bucket.tolist()):
                yield one, rows[bucket == one]
            yield 0, result

    return run


def _make_combiner(
    combine: "Callable[[Sequence[Longs]], T]",
) -> "Callable[[Iterable[Longs | Result]], tuple[T | None, list[Result]]]":
    def run(values: "Iterable[Longs | Result]") -> tuple[T | None, list[Result]]:
        rows: list[Longs] = []
        results: list[Result] = []
        for one in values:
            if isinstance(one, Result):
                results.append(one)
            else:
                rows.append(one)
        return combine(rows) if rows else None, results

    return run


def _each(function: Function) -> Callable[[Sequence[Work]], list[Result]]:
    def run(works: Sequence[Work]) -> list[Result]:
        return [function(work) for work in works]

    return run
