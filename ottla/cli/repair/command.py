"""`ottla repair`: rebuild indexes and snapshots from the batches, and truncate damaged logs on request. shell"""

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.output import Output, exit_at_errors, output_for, takes_format
from ottla.printable import shell_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.cli.inspect.directory import Directory
    from ottla.cli.repair.cost import Cost
    from ottla.cli.repair.plan import Change, Plan
    from ottla.protocol.values import TopicPartition

NOTHING, SOMETHING, NOT_REPAIRED = 0, 1, 2


class _Refused(Exception):
    """The directory cannot be repaired now. The message has the reason for the user."""


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@click.option(
    "--truncate",
    metavar="TOPIC-PARTITION",
    multiple=True,
    help="Cut this partition's log at its damage; all later records are lost; may repeat.",
)
@takes_format
def repair(directory: Path, dry_run: bool, truncate: tuple[str, ...], format_name: str) -> None:
    """Rebuild indexes and snapshots from the batches; cut damaged logs if asked.

    Every batch is read. Indexes, producer snapshots and the small files of a partition are replaced where the batches
    contradict them; a torn tail that any start would cut is cut. A log with damage in the middle is not changed: the
    command prints the cost of each choice, and --truncate cuts the log.

    No broker may use the directory. A second run finds nothing to do.

    Exit codes: 0 everything is sound now, 1 damage is left (with --dry-run: a repair is needed), 2 usage, or the
    directory cannot be repaired.
    """
    from ottla.cli.inspect.directory import Directory

    with exit_at_errors(NOT_REPAIRED, directory, _Refused), _lock(directory, dry_run):
        found = Directory(directory)
        _check(found, truncate)
        code = _repair(found, dry_run, frozenset(truncate), output_for(format_name))
    sys.exit(code)


@contextmanager
def _lock(directory: Path, dry_run: bool) -> "Iterator[None]":
    """Hold the lock of the directory; a dry run only checks that no process holds it."""
    from ottla.broker.ports.disk import RealDisk
    from ottla.broker.ports.locks import LockHeld
    from ottla.cli.inspect.directory import holder_of_lock
    from ottla.protocol.checkpoints import LOCK, META_PROPERTIES
    from ottla.scan.listing import UnreadableDirectory, check_log_directory

    try:
        check_log_directory(str(directory))
    except UnreadableDirectory as error:
        raise _Refused(str(error)) from None
    if not (directory / META_PROPERTIES).exists():
        raise _Refused(f"{directory} has no {META_PROPERTIES}: copy it from where the partitions came from")
    if dry_run:
        holder = holder_of_lock(directory / LOCK)
        if holder is not None:
            raise _Refused(f"{directory} is in use by process {holder}: stop the broker first")
        yield
        return
    try:
        lock = RealDisk().lock(str(directory / LOCK))
    except LockHeld as held:
        raise _Refused(str(held)) from None
    try:
        yield
    finally:
        lock.release()


def _check(found: "Directory", truncate: tuple[str, ...]) -> None:
    from ottla.protocol.checkpoints import PUT_BACK

    unknown = [each for each in truncate if each not in found.partitions]
    if unknown:
        raise _Refused(f"--truncate {unknown[0]}: there is no such partition")
    if found.problems:
        # Without recovery points, damage below them would look like a torn tail.
        raise _Refused(f"{found.path}/{found.problems[0]}; {PUT_BACK}")


def _repair(found: "Directory", dry_run: bool, truncate: frozenset[str], output: Output) -> int:
    import time

    from ottla.broker.ports.disk import RealDisk
    from ottla.cli.repair.apply import apply_changes, lower_checkpoints

    now_ms = round(time.time() * 1000)
    found.read_metadata(now_ms)
    disk = RealDisk()
    changes: list[Change] = []
    damaged: list[Damage] = []
    ends: dict[TopicPartition, int] = {}
    for number, name in enumerate(found.partitions, 1):
        _print_progress(number, len(found.partitions))
        plan, damage = _plan(found, name, now_ms, name in truncate)
        if damage is not None:
            damaged.append(damage)
        if name in truncate:
            ends[_key(name)] = plan.end_offset
        if not dry_run:
            apply_changes(disk, plan.changes)
        changes += plan.changes
    lowered = lower_checkpoints(found.path, ends)
    if not dry_run:
        apply_changes(disk, lowered)
    changes += lowered
    left = [each for each in damaged if not each.is_cut]
    _show(found, changes, damaged, dry_run, output)
    return SOMETHING if left or (dry_run and changes) else NOTHING


class Damage(NamedTuple):
    """A partition whose log needs a choice; `is_cut` if it was made. `cost` is None if no single batch is bad.

    `open_after` counts the transactions that are open after a cut, `is_noticed` whether a start finds the damage.
    """

    name: str
    what: str
    cost: "Cost | None"
    open_after: int
    is_noticed: bool
    is_cut: bool


def _plan(found: "Directory", name: str, now_ms: int, cut_damaged: bool) -> "tuple[Plan, Damage | None]":
    from ottla.cli.repair.cost import cost_of_cut
    from ottla.cli.repair.plan import plan_partition, start_notices

    directory, settings, start = str(found.path / name), found.settings_of(name), found.start_of(name, now_ms)
    topic = found.image.topics.get(_key(name)[0])
    topic_id = None if topic is None else topic.topic_id
    plan = plan_partition(directory, settings, start, topic_id, cut_damaged=False)
    if plan.damage is None:
        return plan, None
    known_end = max(start.recovery_point, found.high_watermarks.get(_key(name), 0))
    cost = cost_of_cut(directory, known_end)
    cut = plan_partition(directory, settings, start, topic_id, cut_damaged=True)
    noticed = start_notices(directory, settings, start)
    is_cut = cut_damaged and cut.damage is None
    damage = Damage(name, plan.damage, cost, cut.open_transactions, noticed, is_cut)
    return (cut if cut_damaged else plan), damage


def _key(name: str) -> "TopicPartition":
    from ottla.protocol.checkpoints import parse_directory_name

    return parse_directory_name(name) or ("", 0)


def _print_progress(number: int, count: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\rottla: {number} of {count} partitions", err=True, nl=number == count)


def _show(found: "Directory", changes: "list[Change]", damaged: list[Damage], dry_run: bool, output: Output) -> None:
    left = [each for each in damaged if not each.is_cut]
    would = "would change" if dry_run else "changed"
    sentence = f"{found.path}: {len(found.partitions)} partitions, {would} {len(changes)} files"
    if not changes and not damaged:
        sentence = f"{found.path}: {len(found.partitions)} partitions, nothing to repair"
    if left:
        sentence += f"; {len(left)} damaged partitions are left"
    output.line("result", f"{sentence}.")
    if changes:
        rows = [(each.path.removeprefix(f"{found.path}/"), _what(each), each.reason) for each in changes]
        output.table("changes", ("file", "what", "why"), rows)
    if damaged:
        output.table("damage", ("partition", "what"), [(each.name, each.what) for each in damaged])
        _show_costs(damaged, output)
    if left:
        choices = [row for each in left for row in _choices(found, each)]
        output.table("choices", ("partition", "choice", "effect", "command"), choices)
    output.close()


def _what(change: "Change") -> str:
    if change.kind == "cut":
        return f"cut to {change.size_bytes} bytes"
    if change.kind == "rename":
        return f"renamed to {Path(change.target).name}"
    return "removed" if change.kind == "remove" else f"written, {len(change.content)} bytes"


def _show_costs(damaged: list[Damage], output: Output) -> None:
    """Show the readable data after the first bad batch."""
    rows = [
        (each.name, *each.cost.fault[:3], each.cost.fault.looks_like, *each.cost[1:], each.open_after)
        for each in damaged
        if each.cost is not None
    ]
    if rows:
        place = ("partition", "segment", "position", "first_lost_offset", "looks_like", "bytes", "offsets", "batches")
        counts = ("records", "committed", "aborted", "group_offsets", "transactional_ids", "open_after")
        output.table("a cut gives up", (*place, *counts), rows)


def _choices(found: "Directory", damage: Damage) -> "Iterator[tuple[str, str, str, str | None]]":
    cost = damage.cost
    stays = "it stays offline, with its sound records" if damage.is_noticed else "it is served, and readers fail on it"
    if damage.name.startswith("__"):
        stays += "; the broker lacks the state in this partition"
    yield damage.name, "leave it, or put a backup in its place", stays, None
    if cost is None:
        lost = "it is served as it is; the missing part is lost"
    else:
        lost = f"it is served up to offset {cost.fault.offset}; {cost.offsets} offsets from there on are lost, "
        lost += f"among them {cost.records} readable records and {cost.committed} commits"
    if damage.open_after:
        lost += f"; {damage.open_after} transactions are open then: `ottla txn orphans` finds those that will never end"
    yield damage.name, "cut it", lost, shell_line(["ottla", "repair", str(found.path), "--truncate", damage.name])
