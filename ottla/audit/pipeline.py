"""The audit from end to end: list, plan, read in tasks, merge their results, check them. shell"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapreplace

import numpy as np

from ottla.audit import tasks
from ottla.audit.ambiguous_ends import AmbiguousEnds, find_ambiguous_ends
from ottla.audit.audited import Audit, Limit, Source
from ottla.audit.carrying import Continued, carry_on, continue_audit, cut_later
from ottla.audit.checks import history
from ottla.audit.checks.finding import Finding
from ottla.audit.checks.hanging import Present
from ottla.audit.checks.words import count
from ottla.audit.copy_tasks import find_copies
from ottla.audit.listed import Listed
from ottla.audit.merge import judge
from ottla.audit.output_tables import clear
from ottla.audit.pulled import at_time_of_copy
from ottla.audit.rematching import match_again
from ottla.audit.replica_tasks import ComparedReplicas, compare_replicas
from ottla.audit.request import Request, changed_since, compacted_meanwhile, list_everything
from ottla.audit.runner import TASK_BYTES, AuditFailed, FilesVanished, Runner, raise_first_error, run
from ottla.audit.source import source_of
from ottla.audit.tasks import Settings, Work
from ottla.audit.topics import METADATA
from ottla.protocol.values import TopicPartition
from ottla.scan import states
from ottla.scan.listing import PartitionLog, select_topics
from ottla.scan.ranges import cut_partition
from ottla.verdict import SOME_BROKERS

# A partition is cut for several cores only if it is large enough, and if whole partitions would leave cores idle:
# cutting reads its headers twice, which costs about half as much as an audit.
LEAST_CUT_BYTES = TASK_BYTES
MOST_UNEVEN = 1.25
# The first dirty offset, if it is not known.
ANYWHERE = 2**62
# At most this many transactions of a range, and of all ranges, are kept for the timelines of a report.
MOST_RECENT = 500
MOST_RECENT_OF_ALL = 200_000
# The progress line shows ranges that are done.
LARGEST_CUT_BYTES = 16 * 1024 * 1024 * 1024
MOST_TRIES = 3
# Records are deleted from a partition of a cluster while it is read: only this partition is read again.
MOST_READS = 10


def audit(runner: Runner, request: Request) -> Audit:
    """Audit as `request` says. Raises UnreadableDirectory, or AuditFailed if a task could not read its files."""
    return audit_listing(runner, request, list_everything(request))


def audit_listing(runner: Runner, request: Request, listed: Sequence[Listed]) -> Audit:
    """Audit the listed partitions, and list again when the broker deleted files that were to be read."""
    request = at_time_of_copy(request, listed)
    for _ in range(MOST_TRIES - 1):
        try:
            return _audit_once(runner, request, listed)
        except FilesVanished:
            if request.output is not None:
                clear(request.output)
            listed = list_everything(request)
    return _audit_once(runner, request, listed)


def _audit_once(runner: Runner, request: Request, listed: Sequence[Listed]) -> Audit:
    logs = [one.log for one in listed]
    chosen = _choose(request, listed)
    copied_topics = {topic for pair in request.copies for topic in (pair.source, pair.target)}
    for topic in sorted(copied_topics - {log.topic for log in logs}):
        raise AuditFailed(f"--copies names {topic}, which does not exist")
    if request.walks_no_log:
        return _audit_open(runner, request, listed, chosen)
    now = continue_audit(request, listed, chosen)
    recent = min(MOST_RECENT, MOST_RECENT_OF_ALL // max(len(chosen), 1))
    settings = Settings(
        request.checks,
        request.now_ms,
        request.until_ms,
        request.producer_expiration_ms,
        request.output,
        recent,
        now is not None,
    )
    longest = _longest(logs, {history.TOPIC}).items()
    coordinators = {number: index for (_, number), index in longest if not listed[index].unread}
    copied_from = [*_longest(logs, copied_topics).values()]
    cores = _count_sharing_cores(runner, listed, (chosen, coordinators.values(), copied_from))
    works = {index: _works(cores[index], index, listed[index], settings) for index in sorted(cores)}
    limits = _limits(runner, request, listed, works)
    works = {index: [one._replace(limit=limits.get(index)) for one in parts] for index, parts in works.items()}
    known = _history(runner, listed, coordinators, works)
    scanned = {index: works[index] for index in chosen}
    if now is not None:
        scanned |= _continue(cores, request, listed, now, scanned)
    entered = _add_entry_states(runner, scanned)
    ready = [_with_decisions(one, known) for one in entered]
    results = runner.run(tasks.scan, ready, "reading segments")
    for _ in range(MOST_READS - 1):
        gone = {one.partition for one in results if one.has_vanished}
        if request.address is None or request.output is not None or now is not None or not gone:
            break
        listed = _list_again(request, listed, gone)
        again = [index for index in gone if not listed[index].unread]
        parts = [part for index in again for part in _works(1, index, listed[index], settings)]
        later = [_with_decisions(part._replace(limit=limits.get(part.part.partition)), known) for part in parts]
        ready = [part for part in ready if part.part.partition not in gone] + later
        chosen = [index for index in chosen if not listed[index].unread]
        results = [one for one in results if one.partition not in gone] + runner.run(tasks.scan, later, "reading again")
    facts = _collect_facts(results, chosen)
    present = _ask_present(request, listed, chosen)
    facts = _add_open_below(listed, facts, present)
    earlier = now.match_again(listed, known) if now is not None else {}
    ambiguous = AmbiguousEnds()
    if {"torn", "hanging"} & {*request.checks}:
        facts = match_again(runner, ready, facts, known)
        ambiguous = find_ambiguous_ends(runner, ready, facts, earlier)
    if now is not None:
        ambiguous = ambiguous._replace(markers=[*now.markers(), *ambiguous.markers])
        facts = {index: now.add_earlier(index, earlier, parts, request) for index, parts in facts.items()}
        facts = _add_open_below(listed, facts, present)  # those without new records, too
    copied = (
        find_copies(runner, request.copies, {index: works[index] for index in copied_from})
        if "copies" in request.checks
        else []
    )
    compared = _compare_replicas(runner, request, listed, chosen, limits)
    chosen_ones = compacted_meanwhile({index: listed[index] for index in chosen})
    every = frozenset(log.path for log in logs)
    changed = changed_since(request, listed) if request.until_ms is None else every
    copied += compared.findings
    found = judge(request, chosen_ones, facts, known, limits, copied, ambiguous, changed, present)
    if now is not None:
        found = found._replace(carry=carry_on(request, listed, now, facts, ambiguous.markers, known, recent))
    return _of_source(found, source_of(request, listed, chosen, present, compared.reduced))


def _compare_replicas(
    runner: Runner,
    request: Request,
    listed: Sequence[Listed],
    chosen: Sequence[int],
    limits: Mapping[int, int],
) -> ComparedReplicas:
    """Make the check `replicas`. `--as-of` ends all copies of a partition where it ends the first one."""
    if "replicas" not in request.checks:
        return ComparedReplicas()
    copies = [listed[index] for index in chosen]
    lost: list[Finding] = []
    unasked: list[Limit] = []
    if request.address is not None:
        from ottla.audit.cluster import list_replicas
        from ottla.audit.lost_reads import find_lost_reads

        lost, unasked = find_lost_reads(request.address, {(one.log.topic, one.log.partition) for one in copies})
        copies = list_replicas(request.address, copies)
    ends: dict[str, int] = {}
    for index in chosen:
        if index in limits:
            ends[listed[index].log.name] = min(limits[index], ends.get(listed[index].log.name, limits[index]))
    settings = Settings(request.checks, request.now_ms, None, request.producer_expiration_ms, None)
    compared = compare_replicas(runner, copies, ends, settings)
    reduced = [*compared.reduced, *unasked, *_list_single([listed[index] for index in chosen], copies)]
    return ComparedReplicas([*compared.findings, *lost], reduced)


def _list_single(listed: Sequence[Listed], copies: Sequence[Listed]) -> Iterator[Limit]:
    """Yield a limit for the partitions with a single copy, of a cluster or next to those with several."""
    counts = Counter(one.log.name for one in copies)
    single = [one.log for one in listed if not one.log.is_internal and counts[one.log.name] < 2]
    if single and (max(counts.values(), default=0) > 1 or single[0].window is not None):
        what = count(len(single), "partition has one copy", "partitions have one copy")
        yield Limit("replicas", f"{what} here, such as {single[0].name}: nothing to compare")


def _choose(request: Request, listed: Sequence[Listed]) -> list[int]:
    """Return the partitions to audit, as indexes in `listed`."""
    return [
        index
        for index, one in enumerate(listed)
        if not one.unread
        and one.log.topic != METADATA
        and (not request.topics or select_topics([one.log], request.topics))
    ]


def _collect_facts(results: Sequence[tasks.Result], chosen: Sequence[int]) -> dict[int, list[tasks.RangeFacts]]:
    """Return the facts of each partition in the order of its ranges. Raises the first error of a task."""
    raise_first_error(results)
    facts: dict[int, list[tasks.RangeFacts]] = {index: [] for index in chosen}
    for result in sorted(results, key=lambda one: (one.partition, one.ordinal)):
        assert isinstance(result.value, tasks.RangeFacts)
        facts[result.partition].append(result.value)
    return facts


def _audit_open(runner: Runner, request: Request, listed: Sequence[Listed], chosen: Sequence[int]) -> Audit:
    """Audit the open transactions of a cluster by its brokers' answers alone, and compare its replicas."""
    present = _ask_present(request, listed, chosen)
    assert present is not None
    settings = Settings(request.checks, request.now_ms, None, request.producer_expiration_ms, None)
    facts: dict[int, Sequence[tasks.RangeFacts]] = {}
    by_place = present.by_place
    idle: tasks.RangeFacts | None = None  # the facts of all partitions without open transactions
    for index in chosen:
        one = listed[index]
        (part,) = cut_partition(index, one.log, 1)
        opened = by_place.get((one.log.topic, one.log.partition), ())
        if idle is None or opened:
            of_one = tasks.facts_of_open(Work(part, settings, one.log, ANYWHERE), opened, one.log.least_end)
            idle = idle if opened else of_one
        else:
            of_one = idle._replace(next_offset=one.log.least_end)
        facts[index] = [of_one]
    nothing = history.merge([], {}, {})
    covered = {index: listed[index] for index in chosen}
    compared = _compare_replicas(runner, request, listed, chosen, {})
    found = judge(request, covered, facts, nothing, {}, compared.findings, AmbiguousEnds(), (), present)
    source = source_of(request, listed, chosen, present, compared.reduced)
    return _of_source(found, source._replace(has_records=False))


def _of_source(found: Audit, source: Source) -> Audit:
    """Return the audit with its source, whose brokers the commands of its findings name."""
    found = found._replace(source=source)
    named = [one._replace(action=one.action.replace(SOME_BROKERS, found.bootstrap)) for one in found.findings]
    return found._replace(findings=named)


def _list_again(request: Request, listed: Sequence[Listed], gone: Collection[int]) -> list[Listed]:
    """Return the listing with the present offsets of the partitions at the indexes in `gone`."""
    now = {(one.log.topic, one.log.partition): one for one in list_everything(request)}
    found = list(listed)
    for index in gone:
        place = found[index].log.topic, found[index].log.partition
        found[index] = now.get(place, found[index]._replace(unread="it was deleted while it was read"))
    return found


def _ask_present(request: Request, listed: Sequence[Listed], chosen: Sequence[int]) -> Present | None:
    """Ask a cluster what is open in these partitions; None for directories, and for an audit of an earlier time."""
    if request.address is None or request.as_of:
        return None
    from ottla.audit.cluster import ask_present

    return ask_present(request.address, [(listed[index].log.topic, listed[index].log.partition) for index in chosen])


def _add_open_below(
    listed: Sequence[Listed], facts: dict[int, list[tasks.RangeFacts]], present: Present | None
) -> dict[int, list[tasks.RangeFacts]]:
    """Return the facts with the open transactions that began below the start of a log: no record shows them."""
    if present is None:
        return facts
    opened = present.by_place
    found = {}
    for index, parts in facts.items():
        if not parts:  # no records since the last audit
            found[index] = parts
            continue
        log = listed[index].log
        *before, last = parts
        found[index] = [*before, tasks.add_open_below(last, opened.get((log.topic, log.partition), ()), log.log_start)]
    return found


def _with_decisions(one: Work, known: history.History) -> Work:
    decisions = known.for_place((one.part.topic, one.part.number))
    names = known.names_in(decisions) if one.settings.output else None
    # Tasks need only these columns, and every range of a partition gets all rows.
    columns = np.ascontiguousarray(decisions[:, : history.UPDATED_MS + 1])
    lasting = known.lasting and known.lasting.intersection(np.unique(decisions[:, history.PRODUCER_ID]).tolist())
    return one._replace(decisions=columns, names=names, longest_ms=known.longest_timeout_ms, lasting=lasting)


def _longest(logs: Sequence[PartitionLog], topics: Collection[str]) -> dict[TopicPartition, int]:
    """Map each partition of these topics to its index in the listing, that of the longest replica."""
    found: dict[TopicPartition, int] = {}
    for index, log in enumerate(logs):
        other = found.get((log.topic, log.partition))
        if log.topic in topics and (other is None or _length(log) > _length(logs[other])):
            found[log.topic, log.partition] = index
    return found


def _length(log: PartitionLog) -> tuple[int, int]:
    return log.least_end, log.segments[-1].size_bytes if log.segments else 0


def _works(cores: int, index: int, one: Listed, settings: Settings) -> list[Work]:
    ranges = cut_partition(index, one.log, _target_bytes(cores, one.log))
    return [
        Work(
            part,
            settings,
            one.log if part.ordinal == 0 else None,
            ANYWHERE if one.cleaned_below is None else one.cleaned_below,
            is_last=part.ordinal == len(ranges) - 1,
        )
        for part in ranges
    ]


def _continue(
    cores: Mapping[int, int],
    request: Request,
    listed: Sequence[Listed],
    now: Continued,
    works: Mapping[int, Sequence[Work]],
) -> dict[int, list[Work]]:
    """Return the work of the partitions that an earlier audit has read up to an offset. Raises AuditFailed."""
    assert request.carry is not None
    found = {}
    for index, parts in works.items():
        one = now.starts_at(index)
        if one is None:
            continue
        log = listed[index].log
        try:
            ranges = cut_later(request.carry.path, index, log, one, _target_bytes(cores[index], log))
        except FileNotFoundError as error:
            raise FilesVanished(f"{log.name}: {error}") from None
        except OSError as error:
            raise AuditFailed(f"{log.name}: {error}") from None
        entering = {0: one.entering}
        found[index] = [
            parts[0]._replace(part=part, log=None, entering=entering.get(at), is_last=at == len(ranges) - 1)
            for at, part in enumerate(ranges)
        ]
    return found


def _count_sharing_cores(runner: Runner, listed: Sequence[Listed], groups: Iterable[Collection[int]]) -> dict[int, int]:
    """Map each partition to the number of cores that share it. `groups`: partitions that are read at the same time.

    One core reads a partition if whole partitions of its groups, the largest first, keep all cores busy.
    """
    found: dict[int, int] = {}
    for group in groups:
        loads = [0] * max(runner.parallelism, 1)
        for size in sorted((listed[index].log.size_bytes for index in group), reverse=True):
            heapreplace(loads, loads[0] + size)
        cores = 1 if max(loads) * len(loads) <= MOST_UNEVEN * sum(loads) else len(loads)
        found |= {index: max(cores, found.get(index, 1)) for index in group}
    return found


def _target_bytes(cores: int, log: PartitionLog) -> int:
    share = log.size_bytes // cores + 1
    return min(max(share, LEAST_CUT_BYTES), LARGEST_CUT_BYTES)


def _limits(
    runner: Runner, request: Request, listed: Sequence[Listed], works: Mapping[int, Sequence[Work]]
) -> dict[int, int]:
    """Map an index in the listing to the offset at which `--as-of` cuts the partition."""
    limits: dict[int, int] = {}
    for index in works:
        log = listed[index].log
        if (log.topic, log.partition) in request.until_offsets:
            limits[index] = request.until_offsets[log.topic, log.partition]
    if request.until_ms is not None:
        everything = [one for parts in works.values() for one in parts]
        for result in run(runner, tasks.cut, everything, "finding the time"):
            if isinstance(result.value, int):
                limits[result.partition] = min(result.value, limits.get(result.partition, result.value))
    return limits


def _history(
    runner: Runner,
    listed: Sequence[Listed],
    coordinators: Mapping[int, int],
    works: Mapping[int, Sequence[Work]],
) -> history.History:
    todo = [one for index in coordinators.values() for one in works[index]]
    parts = []
    for result in run(runner, tasks.read_history, todo, "reading the coordinators' log") if todo else []:
        assert isinstance(result.value, history.RangeHistory)
        parts.append(result.value)
    read = {index: listed[index] for index in coordinators.values()}
    if compacted_meanwhile(read) != read:
        # Below the old checkpoint nothing was missing when it was read, so a decision would seem never made.
        raise FilesVanished(f"{history.TOPIC} was compacted while it was read: audit again")
    cleaned = {number: listed[index].cleaned_below for number, index in coordinators.items()}
    known = history.merge(
        parts,
        {number: ANYWHERE if offset is None else offset for number, offset in cleaned.items()},
        {number: listed[index].log.log_start for number, index in coordinators.items()},
    )
    known.unread = {
        number: tuple(one for part in parts if part.coordinator == number for one in part.unread)
        for number in coordinators
    }
    known.directories = {number: listed[index].directory for number, index in coordinators.items()}
    known.count = max((listed[index].of_topic for index in coordinators.values()), default=0)
    return known


def _add_entry_states(runner: Runner, works: Mapping[int, Sequence[Work]]) -> list[Work]:
    """Return the work with the states that enter each range. A cut partition needs a pass over its headers for them."""
    from ottla.scan.partitions import entering

    cut = {index: parts for index, parts in works.items() if len(parts) > 1}
    ready = [one for index, parts in works.items() if index not in cut for one in parts]
    if not cut:
        return ready
    todo = [one for parts in cut.values() for one in parts[:-1]]
    left: dict[int, list[states.States]] = {}
    for result in run(runner, tasks.leaving, todo, "following producers"):
        assert isinstance(result.value, states.States)
        left.setdefault(result.partition, []).append(result.value)
    for index, parts in cut.items():
        log, enters = parts[0].log, parts[0].entering
        if enters is None:
            assert log is not None
            enters = entering(log)
        ready.append(parts[0])
        for part, before in zip(parts[1:], left[index], strict=True):
            enters = states.enter(enters, [before], part.settings.producer_expiration_ms)
            ready.append(part._replace(entering=enters))
    return ready
