"""The request for an audit, and the partitions that it covers. shell"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.audit.checks import copies
from ottla.audit.checks.copies import Pair
from ottla.audit.checks.finding import CHECKS
from ottla.audit.checks.history import NEVER
from ottla.audit.listed import Listed
from ottla.audit.outputs import Tables
from ottla.audit.selection import (
    PRODUCER_ID_EXPIRATION_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
    BadArgument,
    Selection,
    parse_as_of,
    parse_checks,
    parse_expiration_ms,
    parse_rate,
    parse_time_ms,
)
from ottla.audit.topics import read_topics
from ottla.protocol.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS
from ottla.protocol.indexes import TIME_ENTRY
from ottla.protocol.values import TopicPartition
from ottla.scan import storage
from ottla.scan.listing import (
    PartitionLog,
    UnreadableDirectory,
    describe_missing_topics,
    find_checkpoint,
    list_partitions,
    read_checkpoint,
    read_cluster_id,
    select_topics,
    storage_path,
    topic_patterns,
)
from ottla.wire import is_kafka_address

if TYPE_CHECKING:
    from ottla.audit.carry import Carry
    from ottla.wire.address import KafkaAddress


class Request(NamedTuple):
    """Request for an audit.

    `topics`: globs (none: all). `until_ms` or `until_offsets` ((topic, partition) -> offset) is `--as-of`, `as_of` its
    text. `since_ms`: older segments are left out if a snapshot allows it. `output`: the folder of the tables; tasks
    write the table of transactions. `copies`: pairs of topics, one of which has each record of the other.
    `address`: the cluster whose brokers are asked, instead of directories. `decided_until_ms`: the directories have all
    decisions and markers up to this time; NEVER if they have all. `carry`: what an earlier audit carried.
    """

    directories: tuple[str, ...]
    topics: tuple[str, ...]
    now_ms: int
    checks: tuple[str, ...] = CHECKS
    as_of: str = ""
    until_ms: int | None = None
    until_offsets: Mapping[TopicPartition, int] = {}
    since_ms: int | None = None
    id_expiration_ms: int = TRANSACTIONAL_ID_EXPIRATION_MS
    producer_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    output: Tables | None = None
    copies: tuple[Pair, ...] = ()
    address: "KafkaAddress | None" = None
    decided_until_ms: int = NEVER
    carry: "Carry | None" = None

    @property
    def globs(self) -> tuple[str, ...]:
        """The topics to list: those to audit, and those to compare; empty for all."""
        copied = (name for pair in self.copies for name in (pair.source, pair.target))
        return (*self.topics, *copied) if self.topics else ()

    @property
    def asks_only(self) -> bool:
        """Whether brokers know all that the checks need, so that no record is read."""
        return self.walks_no_log and "replicas" not in self.checks

    @property
    def walks_no_log(self) -> bool:
        """Whether no producer is followed through the log of a cluster: replicas are only compared."""
        return self.address is not None and {*self.checks} <= {"hanging", "replicas"} and not self.as_of


def request_of(selection: Selection, now_ms: int) -> Request:
    """Return the request for an audit at `now_ms`, or at the time of `as_of`. Raises BadArgument."""
    until_ms, until_offsets = parse_as_of(selection.as_of)
    try:
        pairs = tuple(copies.parse(one) for one in selection.copies)
    except ValueError as error:
        raise BadArgument(str(error)) from error
    directories = tuple(dict.fromkeys(selection.directories))
    _check_carry(selection)
    address = _address_of(directories, selection)
    return Request(
        directories,
        topic_patterns(selection.topics),
        now_ms if until_ms is None else until_ms,
        parse_checks(selection.checks, has_copies=bool(pairs), directories=0 if address else len(directories)),
        selection.as_of,
        until_ms,
        until_offsets,
        parse_time_ms(selection.since, "--since") if selection.since else None,
        parse_expiration_ms(selection.transactional_id_expiration_ms, "--transactional-id-expiration-ms"),
        parse_expiration_ms(selection.producer_id_expiration_ms, "--producer-id-expiration-ms"),
        copies=pairs,
        address=address,
    )


def _check_carry(selection: Selection) -> None:
    """Raise BadArgument for options that leave out records that the next audit would take as read."""
    given = {"--as-of": selection.as_of, "--since": selection.since, "--copies": selection.copies}
    if selection.carry:
        for option in (name for name, value in given.items() if value):
            raise BadArgument(f"--carry cannot be used with {option}, which does not read each record once")


def _address_of(directories: Sequence[str], selection: Selection) -> "KafkaAddress | None":
    """Return the cluster to read, None for directories. Raises BadArgument."""
    addresses = [one for one in directories if is_kafka_address(one)]
    if not addresses:
        if selection.command_config:
            raise BadArgument("--command-config is for clusters: name one, such as kafka://HOST:PORT")
        return None
    if len(directories) > 1:
        raise BadArgument("an audit reads one cluster, or directories of one cluster: name one kafka:// address alone")
    if selection.since:
        raise BadArgument("--since needs the producer snapshots of a directory, which no broker sends")
    from ottla.wire.address import parse_kafka_address
    from ottla.wire.client_properties import client_options

    try:
        address = parse_kafka_address(addresses[0])
        client_options(Path(selection.command_config) if selection.command_config else None)
        return address._replace(
            properties=selection.command_config, max_bytes_per_second=parse_rate(selection.max_bytes_per_second)
        )
    except ValueError as error:
        raise BadArgument(str(error)) from None


def list_everything(request: Request) -> list[Listed]:
    """List the partitions of all directories, as far back as `--since` asks, or of the cluster.

    Raises UnreadableDirectory, also if two directories are of different clusters.
    """
    if request.address is not None:
        from ottla.audit.cluster import list_cluster  # and the connection, which directories do not need

        return list_cluster(request.address, request.globs)
    _check_one_cluster(request.directories)
    listed = [one for directory in request.directories for one in list_all(directory)]
    if request.since_ms is None:
        return listed
    since_ms = request.since_ms
    return [one._replace(log=later_than(one.log, since_ms)) for one in listed]


def list_selection(request: Request, log: Callable[[str], None]) -> list[Listed]:
    """List the partitions. Log globs that match no topic, and raise BadArgument if none matches any.

    A misspelt topic must not be reported as clean. Raises UnreadableDirectory.
    """
    listed = list_everything(request)
    logs = [one.log for one in listed]
    unmatched = describe_missing_topics(logs, request.topics)
    if unmatched:
        if not select_topics(logs, request.topics):
            raise BadArgument(f"{', '.join(request.directories)}: {unmatched}")
        log(unmatched)
    names = {(log.topic, log.partition) for log in logs}
    for topic, partition in request.until_offsets:
        if (topic, partition) not in names:
            raise BadArgument(f"--as-of names {topic}:{partition}, which does not exist")
    return listed


def _check_one_cluster(directories: tuple[str, ...]) -> None:
    """Refuse directories of different clusters: their coordinators and producer ids are unrelated."""
    if len(directories) == 1:
        return
    named = [(cluster_id, directory) for directory in directories if (cluster_id := read_cluster_id(directory))]
    for cluster_id, directory in named:
        first_id, first = named[0]
        if cluster_id != first_id:
            raise UnreadableDirectory(
                f"{storage.hide_secrets(directory)} is of cluster {cluster_id}, "
                f"and {storage.hide_secrets(first)} of {first_id}: audit each by itself"
            )


def list_all(directory: str) -> list[Listed]:
    """List all partitions of a directory with their checkpoints, which are read before the sizes."""
    root = storage_path(directory)
    cleaned = find_checkpoint(storage.join(root, CLEANER_OFFSETS))
    topics = read_topics(root)
    watermarks = read_checkpoint(storage.join(root, HIGH_WATERMARKS))
    return [
        Listed(
            directory,
            log,
            topics.cleaned_below(cleaned, log.topic, log.partition),
            watermarks.get((log.topic, log.partition), 0),
            topics.created_ms.get((log.topic, log.partition), -1),
            topics.counts.get(log.topic, 0),
        )
        for log in list_partitions(directory)
    ]


def changed_since(request: Request, listed: Iterable[Listed]) -> frozenset[str]:
    """Return the paths of the partitions whose segments have changed since they were listed."""
    listed = list(listed)
    if request.address is not None:
        return frozenset(one.log.path for one in listed)  # producers go on while a cluster is read
    try:
        now = {one.log.path: one.log.segments for one in list_everything(request)}
    except (OSError, UnreadableDirectory):
        now = {}
    changed = frozenset(one.log.path for one in listed if now.get(one.log.path) != one.log.segments)
    if changed and (len(set(request.directories)) > 1 or storage.is_remote(storage_path(request.directories[0]))):
        # Only in a local directory, coordinators are listed after all other partitions.
        return frozenset(one.log.path for one in listed)
    return changed


def compacted_meanwhile(listed: Mapping[int, Listed]) -> dict[int, Listed]:
    """Return `listed` with current first dirty offsets: a broker may have compacted segments after the listing."""
    if any(one.log.window is not None for one in listed.values()):
        return dict(listed)
    directories = {one.directory for one in listed.values()}
    now = {each: find_checkpoint(storage.join(storage_path(each), CLEANER_OFFSETS)) or {} for each in directories}
    found = {}
    for index, one in listed.items():
        cleaned_below = one.cleaned_below
        if cleaned_below is not None:
            cleaned_below = max(cleaned_below, now[one.directory].get((one.log.topic, one.log.partition), 0))
        found[index] = one._replace(cleaned_below=cleaned_below)
    return found


def later_than(log: PartitionLog, since_ms: int) -> PartitionLog:
    """Return the log without older segments at its start, if a snapshot has the producers' states after them."""
    names = {storage.stem_of(path) for path in log.snapshots}
    first = 0
    for index, segment in enumerate(log.segments[:-1]):
        latest_ms = _latest_ms(storage.with_suffix(segment.path, ".timeindex"))
        if latest_ms is None or latest_ms >= since_ms:
            break
        if f"{log.segments[index + 1].base_offset:020d}" in names:
            first = index + 1
    kept = log.segments[first:]
    return log._replace(segments=kept, log_start=max(log.log_start, kept[0].base_offset)) if first else log


def _latest_ms(path: str) -> int | None:
    """Return the time of the last entry, or None. When a segment is rolled, it is the segment's largest timestamp."""
    try:
        content = storage.read(path)
    except OSError:
        return None
    if len(content) < TIME_ENTRY.size or len(content) % TIME_ENTRY.size:
        return None
    latest: int = TIME_ENTRY.unpack_from(content, len(content) - TIME_ENTRY.size)[0]
    return latest if latest > 0 else None
