"""`ottla inspect`: the contents and the state of a data directory or a cluster, read without any change. shell"""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.bootstrap import PathOrAddress, open_address, refuse_options, takes_command_config
from ottla.cli.output import Output, exit_at_errors, fail, output_for, table_of, takes_format

if TYPE_CHECKING:
    from ottla.cli.inspect.cluster import ClusterState
    from ottla.cli.inspect.directory import Coordinated, Directory, GroupView
    from ottla.cli.inspect.partition import PartitionState

SOUND, DAMAGED, FAILED = 0, 1, 2
MOST_TRIES = 3


@click.command()
@click.argument("source", metavar="DIR|kafka://...", type=PathOrAddress(file_okay=False))
@click.option("--verify", is_flag=True, help="Check the CRC of every batch in a directory, not only the headers.")
@click.option("--all", "everything", is_flag=True, help="Show each partition of internal topics too.")
@takes_command_config
@takes_format
def inspect(source: Path | str, verify: bool, everything: bool, command_config: Path | None, format_name: str) -> None:
    """Show the contents and the state of a data directory or a cluster.

    A directory may be of Ottla or Apache Kafka. Shows the cluster, features, partitions with the offsets that a start
    would find, open transactions (of partitions, and of their coordinators), groups, damage, and leftovers of
    deletions and compactions. Nothing is changed or locked. `scan_bytes` is the part of a log that a start would read.

    Internal topics are one line, except partitions with damage or open transactions; JSON has all.

    A broker may be using the directory; the figures are then those of one moment.

    With kafka://HOST:PORT,... the brokers are asked: offsets and leaders of partitions, open transactions, groups. No
    record is read.

    Exit codes: 0 no damage, 1 damage, 2 usage, or a directory, a batch or a partition could not be read.
    """
    output = output_for(format_name)
    everything = everything or format_name == "json"
    if isinstance(source, Path):
        refuse_options(
            FAILED, {"--command-config": command_config}, "is for clusters: name one, such as kafka://HOST:PORT"
        )
        sys.exit(_inspect_directory(source, verify, everything, output))
    refuse_options(FAILED, {"--verify": verify}, "reads files: ottla audit kafka://... checks the batches of a cluster")
    sys.exit(_inspect_cluster(source, command_config, everything, output))


def _inspect_directory(directory: Path, verify: bool, everything: bool, output: Output) -> int:
    from ottla.cli.inspect.directory import Directory
    from ottla.scan.listing import UnreadableDirectory, check_log_directory

    with exit_at_errors(FAILED, directory, UnreadableDirectory):
        check_log_directory(str(directory))
        found = Directory(directory)
        return _inspect(found, verify, everything, output)


def _inspect_cluster(source: str, command_config: Path | None, everything: bool, output: Output) -> int:
    address = open_address(FAILED, "inspect", source, command_config)
    from ottla.cli.inspect.cluster import ask_cluster
    from ottla.scan.listing import UnreadableDirectory

    try:
        found = ask_cluster(address)
    except UnreadableDirectory as error:
        fail(FAILED, error)
    unread = [one for one in found.partitions if one.unread]
    size = sum(one.log.size_bytes for one in found.partitions)
    topics = len({one.log.topic for one in found.partitions})
    state = f"{len(unread)} cannot be read" if unread else "all can be read"
    output.line(
        "state",
        f"{address}: {topics} topics, {len(found.partitions)} partitions ({state}), {size} bytes; "
        f"{len(found.opened)} open transactions, {len(found.groups)} groups.",
    )
    identity = [("cluster id", found.cluster_id)]
    identity += [(f"broker {number}", f"{host}:{port}") for number, (host, port) in sorted(found.brokers.items())]
    output.table("identity", ("what", "value"), identity)
    _show_cluster_partitions(found, everything, output)
    _show_cluster_transactions(found, output)
    if found.groups:
        output.table("groups", ("group", "offsets"), [*found.groups.items()])
    problems = [(one.log.name, one.unread) for one in unread] + [("", gap) for gap in found.gaps]
    if problems:
        output.table("problems", ("partition", "what"), problems)
    output.close()
    return FAILED if problems else SOUND


def _show_cluster_partitions(found: "ClusterState", everything: bool, output: Output) -> None:
    opened = Counter(one.place for one in found.opened)
    rows, hidden = [], 0
    for one in found.partitions:
        log, window = one.log, one.log.window
        place = log.topic, log.partition
        assert window is not None
        if log.is_internal and not (everything or one.unread or opened[place]):
            hidden += 1
            continue
        leader = found.leaders.get(place, -1)
        offsets = (None,) * 3 if one.unread else (log.log_start, window.end_offset, window.stable_offset)
        named = (log.name, "not readable" if one.unread else "readable", None if leader < 0 else leader)
        rows.append((*named, *offsets, log.size_bytes or None, opened[place]))
    offset_columns = ("log_start", "log_end", "last_stable")
    columns = ("partition", "state", "leader", *offset_columns, "size_bytes", "open_transactions")
    output.table("partitions", columns, rows)
    if hidden:
        output.line("internal topics", f"  and {hidden} of internal topics; --all shows each")


def _show_cluster_transactions(found: "ClusterState", output: Output) -> None:
    if found.opened:
        columns = ("partition", "first_offset", "producer_id", "producer_epoch", "last_timestamp_ms")
        rows = [
            (f"{one.topic}-{one.partition}", one.start_offset, one.producer_id, one.epoch, one.last_timestamp_ms)
            for one in found.opened
        ]
        output.table("open transactions, by partition", columns, rows)
    if found.coordinated:
        named = ("transactional_id", "state", "producer_id", "producer_epoch", "start_ms", "timeout_ms", "partitions")
        held = [
            (
                *(one.transactional_id, one.state, one.producer_id, one.epoch, one.start_ms, one.timeout_ms),
                ", ".join(f"{topic}-{index}" for topic, index in sorted(one.partitions)),
            )
            for one in found.coordinated
        ]
        output.table("open transactions, by coordinator", named, held)


def _inspect(found: "Directory", verify: bool, everything: bool, output: Output) -> int:
    import time

    now_ms = round(time.time() * 1000)
    found.read_metadata(now_ms)
    states = _inspect_all(found, verify, now_ms)
    ids, coordinated = found.transactions(now_ms)
    groups = found.groups(now_ms)
    damaged = [each for each in states if each.verdict in ("damaged", "unreadable")]
    output.line("state", _sentence(found, states, ids, len(damaged), verify))
    output.table("identity", ("what", "value"), _identity(found))
    _show_partitions(found, [each for each in states if everything or not _is_mere_internal(each)], output)
    if not everything:
        _print_internal([each for each in states if _is_mere_internal(each)], output)
    _show_transactions(states, coordinated, output)
    if groups:
        _show_groups(groups, output)
    problems = [(each.name, each.verdict, each.problem) for each in states if each.problem is not None]
    problems += [("", "unreadable", each) for each in found.problems]
    problems += [("", "not read", each) for each in found.unread]
    problems += [("", "torn", f"{each}; the next start writes it again") for each in found.torn]
    if problems:
        output.table("problems", ("partition", "verdict", "what"), problems)
    leftovers = [(each.name, ", ".join(each.leftovers)) for each in states if each.leftovers]
    leftovers += [(each, "not a partition that a start would load") for each in found.others]
    if leftovers:
        output.table("left over", ("directory", "what"), leftovers)
    output.close()
    if damaged or found.problems:
        return DAMAGED
    return FAILED if found.unread else SOUND


def _inspect_all(found: "Directory", verify: bool, now_ms: int) -> list["PartitionState"]:
    states: list[PartitionState] = []
    for number, name in enumerate(found.partitions, 1):
        if sys.stderr.isatty():
            click.echo(f"\rottla: {number} of {len(found.partitions)} partitions", err=True, nl=False)
        states += _inspect_one(found, name, verify, now_ms)
    if sys.stderr.isatty():
        click.echo(err=True)
    return states


def _inspect_one(found: "Directory", name: str, verify: bool, now_ms: int) -> list["PartitionState"]:
    """Return the state of a partition, nothing if its directory is deleted meanwhile. Retry if segments are deleted."""
    from ottla.cli.inspect.partition import inspect_partition

    directory = found.path / name
    for tries_left in reversed(range(MOST_TRIES)):
        try:
            return [inspect_partition(str(directory), found.settings_of(name), found.start_of(name, now_ms), verify)]
        except FileNotFoundError:
            if not directory.exists():
                return []
            if not tries_left:
                raise
    return []


def _is_mere_internal(each: "PartitionState") -> bool:
    """Return whether a partition is of an internal topic and has nothing to report."""
    from ottla.broker.cluster.image import INTERNAL_TOPICS
    from ottla.broker.cluster.kraft_log import METADATA_TOPIC

    internal = each.name.rpartition("-")[0] in (METADATA_TOPIC, *INTERNAL_TOPICS)
    return internal and each.problem is None and not each.open_transactions


def _print_internal(hidden: list["PartitionState"], output: Output) -> None:
    if hidden:
        size_bytes, scan_bytes = sum(each.size_bytes for each in hidden), sum(each.scan_bytes for each in hidden)
        output.line(
            "internal topics",
            f"  and {len(hidden)} of internal topics, {size_bytes} bytes, a start reads {scan_bytes} of them; "
            "--all shows each",
        )


def _sentence(found: "Directory", states: list["PartitionState"], ids: int, damaged: int, verified: bool) -> str:
    if found.holder is not None:
        use = f"in use by process {found.holder}" if found.holder else "in use by another process"
    else:
        use = "cleanly stopped" if found.clean else "not cleanly stopped"
    scan = sum(each.scan_bytes for each in states)
    size = sum(each.size_bytes for each in states)
    topics = len({each.name.rpartition("-")[0] for each in states})
    state = f"{damaged} damaged" if damaged else "none damaged"
    return (
        f"{found.path}: {use}; {topics} topics, {len(states)} partitions ({state}), {size} bytes; "
        f"a start reads {scan} of them; {ids} transactional ids. "
        + ("Every batch was checked." if verified else "Only headers were read: --verify checks every batch.")
    )


def _identity(found: "Directory") -> list[tuple[str, Any]]:
    wrote = (
        "__cluster_metadata-0" in found.partitions and (found.path / "__cluster_metadata-0" / "quorum-state").exists()
    )
    rows: list[tuple[str, Any]] = [("format", "Apache Kafka (KRaft)" if wrote else "Ottla (files of Kafka)")]
    rows += sorted((key, value) for key, value in found.properties.items())
    rows += [("clean stop", found.clean), ("in use by", found.holder)]
    image = found.image
    rows += sorted(image.features.items())
    held = (
        ("ACLs", len(image.acls)),
        ("SCRAM credentials", len(image.scram_credentials)),
        ("entities with quotas", len(image.client_quotas)),
    )
    rows += [row for row in held if row[1]]
    return rows


def _show_partitions(found: "Directory", states: list["PartitionState"], output: Output) -> None:
    from ottla.protocol.checkpoints import parse_directory_name

    columns = ("partition", "state", "log_start", "log_end", "last_stable", "high_watermark", "recovery_point")
    rows = []
    for each in states:
        key = parse_directory_name(each.name) or ("", 0)
        marks = found.high_watermarks.get(key), found.recovery_points.get(key)
        offsets = (each.log_start, each.log_end, each.last_stable, *marks)
        sizes = (each.segment_count, each.size_bytes, each.scan_bytes, each.cut_bytes, len(each.open_transactions))
        rows.append((each.name, each.verdict, *offsets, *sizes))
    sizes_columns = ("segments", "size_bytes", "scan_bytes", "cut_bytes", "open_transactions")
    output.table("partitions", (*columns, *sizes_columns), rows)


def _show_transactions(states: list["PartitionState"], coordinated: list["Coordinated"], output: Output) -> None:
    opened = [{"partition": each.name, **one._asdict()} for each in states for one in each.open_transactions]
    if opened:
        output.table("open transactions, by partition", *table_of(opened))
    if coordinated:
        rows = [
            {
                "transactional_id": each.transactional_id,
                "state": each.state.status.wire_name,
                "producer_id": each.state.producer_id,
                "producer_epoch": each.state.producer_epoch,
                "start_ms": each.state.start_ms,
                "timeout_ms": each.state.timeout_ms,
                "partitions": ", ".join(f"{topic}-{index}" for topic, index in each.state.partitions),
            }
            for each in coordinated
        ]
        output.table("open transactions, by coordinator", *table_of(rows))


def _show_groups(groups: list["GroupView"], output: Output) -> None:
    rows = [(each.group, each.committed, each.pending) for each in groups]
    output.table("groups", ("group", "offsets", "in_open_transactions"), rows)
