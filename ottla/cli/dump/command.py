"""`ottla dump`: the contents of the files of a data directory, with a verdict for each file, or of a cluster. shell"""

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla import files as small_files
from ottla.cli.bootstrap import PathOrAddress, open_address, refuse_options, takes_command_config
from ottla.cli.output import complain, fail, takes_format
from ottla.printable import printable

if TYPE_CHECKING:
    from ottla.cli.dump.decode import Decoder
    from ottla.scan.cluster.listing import ServedPartition

SOUND, DAMAGED, UNREADABLE = 0, 1, 2
# Position of the magic byte in every batch and old message. A text file has a letter at this position.
_MAGIC_AT, _LAST_MAGIC = 16, 2
REPORT_EVERY_BYTES = 64 << 20
OFFSET = click.IntRange(0, 2**63 - 1)


@click.command()
@click.argument("source", metavar="FILE|DIR|kafka://...", type=PathOrAddress())
@click.option("--records", is_flag=True, help="Print the records of each batch too, with keys and values.")
@takes_format
@click.option(
    "--decoder",
    type=click.Choice(["transactions", "offsets", "metadata", "none"]),
    help="Decode records as those of this internal topic.  [default: by the name of the directory]",
)
@click.option("--topics", metavar="GLOBS", default="", help="Topics of a cluster, such as ledger,audit-*.")
@click.option("--partitions", metavar="NUMBERS", default="", help="Partitions of these topics, such as 0,3.")
@click.option("--first-offset", metavar="N", type=OFFSET, help="Begin at the batch of a cluster with this offset.")
@click.option("--end-offset", metavar="N", type=OFFSET, help="Print no batch of a cluster from this offset on.")
@takes_command_config
def dump(
    source: Path | str, records: bool, format_name: str, decoder: str | None, command_config: Path | None, **chosen: Any
) -> None:
    """Print segment files, and the indexes and checkpoints of a log, or the records of a cluster.

    Reads a `.log`, its indexes and snapshots, `.checkpoint` files of the metadata log, offset checkpoints, leader
    epochs, `partition.metadata` and `meta.properties`; of a directory, all of these. Lines are those of
    kafka-dump-log, and a last line for each file with its verdict, sound or damaged. JSON is one object per line.

    With kafka://HOST:PORT,... the brokers send the batches of partitions as they are stored. Their lines have no
    position in a file.

    Nothing is changed or locked. A file that a running broker is writing may look torn.

    Exit codes: 0 all sound, 1 damage, 2 usage, or a file, a partition or a batch could not be read.
    """
    printer = _Printer(records, format_name == "json", decoder)
    if isinstance(source, Path):
        clusters = {"--" + name.replace("_", "-"): value for name, value in chosen.items()}
        clusters["--command-config"] = command_config
        refuse_options(UNREADABLE, clusters, "is for clusters: name one, such as kafka://HOST:PORT")
        sys.exit(_dump_files(source, printer))
    if decoder == "metadata":
        fail(UNREADABLE, "--decoder metadata reads files: brokers do not send the metadata log")
    sys.exit(_dump_cluster(source, printer, command_config, **chosen))


def _dump_files(path: Path, printer: "_Printer") -> int:
    code = SOUND
    _refuse_wrong_folder(path)
    files = _files(path)
    first = next(files, None)
    if first is None or (path.is_file() and _is_foreign(path)):
        what = "it has no file that this command reads" if first is None else "not a file that this command reads"
        fail(UNREADABLE, f"{path}: {what}")
    for file in chain((first,), files):
        try:
            verdict = printer.print_file(file)
        except BrokenPipeError:
            raise  # the reader has closed the pipe: `| head`
        except FileNotFoundError:
            complain(f"{file} was deleted after it was listed: left out")
            code = code if path.is_dir() else UNREADABLE
        except OSError as error:
            complain(f"{file}: {error.strerror or error}")
            code = UNREADABLE
        else:
            code = max(code, verdict)
    return code


def _dump_cluster(
    source: str,
    printer: "_Printer",
    command_config: Path | None,
    topics: str,
    partitions: str,
    first_offset: int | None,
    end_offset: int | None,
) -> int:
    address = open_address(UNREADABLE, "dump", source, command_config)
    from ottla.cli.dump.window import LAST_OFFSET, list_chosen
    from ottla.scan.listing import UnreadableDirectory, topic_patterns
    from ottla.wire import Unanswered

    numbers = _parse_numbers(partitions)
    first, end = first_offset or 0, LAST_OFFSET if end_offset is None else end_offset
    try:
        found = list_chosen(address, topic_patterns(topics), numbers)
    except UnreadableDirectory as error:
        fail(UNREADABLE, error)
    if not found:
        fail(UNREADABLE, f"{address}: no partition {partitions} of these topics")
    code = SOUND
    for one in found:
        try:
            code = max(code, printer.print_partition(one, first, end))
        except BrokenPipeError:
            raise  # the reader has closed the pipe: `| head`
        except (Unanswered, OSError) as error:
            complain(f"{one.log.path}: {error}")
            code = UNREADABLE
    return code


def _parse_numbers(given: str) -> frozenset[int]:
    parts = [part.strip() for part in given.split(",")] if given else []
    if wrong := [part for part in parts if not (part.isascii() and part.isdigit())]:
        fail(UNREADABLE, f"--partitions: {wrong[0]!r} is not a number such as 0")
    return frozenset(map(int, parts))


def _refuse_wrong_folder(path: Path) -> None:
    """Exit unless the path is a file, a log directory, or a folder with files that can be dumped."""
    from ottla.scan.listing import UnreadableDirectory, check_log_directory

    try:
        if path.is_dir() and not any(_is_known(each.name) for each in path.iterdir() if each.is_file()):
            check_log_directory(str(path))
    except UnreadableDirectory as error:
        fail(UNREADABLE, error)
    except OSError as error:
        fail(UNREADABLE, f"{path}: {error.strerror or error}")


def _files(path: Path) -> Iterator[Path]:
    """Yield the file, or the files below the directory that can be dumped, partition by partition."""
    if not path.is_dir():
        yield path
        return
    yield from (each for each in sorted(path.rglob("*")) if _is_known(each.name))


def _is_known(name: str) -> bool:
    from ottla.cli.dump.side_files import reader_of

    return name.endswith((".log", ".checkpoint")) or reader_of(name) is not None


def _is_foreign(path: Path) -> bool:
    """Return whether a file is not Kafka's: by its name, or a `.log` without a segment's name and without batches."""
    if not _is_known(path.name):
        return True
    if path.suffix != ".log" or (path.stem.isascii() and path.stem.isdigit()):
        return False
    from ottla.cli.read_only import ReadOnlyFile

    with ReadOnlyFile(str(path)) as file:
        begin = file.pread(_MAGIC_AT + 1, 0)
    return len(begin) > 0 and (len(begin) <= _MAGIC_AT or begin[_MAGIC_AT] > _LAST_MAGIC)


class _Printer:
    """Prints files one after the other, in one format."""

    def __init__(self, records: bool, as_json: bool, decoder: str | None) -> None:
        self._records = records
        self._as_json = as_json
        self._decoder = decoder
        self._progress = sys.stderr.isatty()

    def print_file(self, path: Path) -> int:
        """Print one file and its verdict, and return the exit code for this file."""
        self._head(path)
        unread = None
        if path.suffix in (".log", ".checkpoint"):
            summary, damage, unread = self._print_log(path)
        else:
            summary, damage = self._print_entries(path)
        return self._verdict(path, summary, damage, unread)

    def print_partition(self, one: "ServedPartition", first_offset: int, end_offset: int) -> int:
        """Print the batches of a partition of a cluster and their verdict, and return the exit code for them.

        Raises Unanswered, OSError.
        """
        from ottla.cli.dump.job import PrintJob
        from ottla.cli.dump.window import print_window

        assert one.log.window is not None
        if one.unread:
            complain(f"{one.log.path}: {one.unread}")
            return UNREADABLE
        window = one.log.window.narrow(first_offset, end_offset)
        if self._as_json:
            offsets = {"log_start": one.log.log_start, "log_end": one.log.window.end_offset}
            self._echo_json({"kind": "partition", "path": window.path, **offsets})
        else:
            click.echo(printable(f"Dumping {window.path}"))
            click.echo(f"Log starting offset: {one.log.log_start}")
        found = print_window(
            PrintJob("", self._records, self._as_json, self._decoder_for(one.log.name)), window, _write
        )
        return self._verdict(window.path, found.summary, found.damage, found.unread)

    def _verdict(self, path: Path | str, summary: str, damage: str | None, unread: str | None) -> int:
        if unread is not None:
            complain(f"{path}: {unread}; kafka-dump-log reads it")
        if self._as_json:
            sound = None if damage is None and unread else damage is None
            verdict = {"kind": "verdict", "sound": sound, "damage": damage, "found": summary}
            self._echo_json(verdict if unread is None else {**verdict, "unread": unread})
        elif damage is not None:
            click.echo(printable(f"damaged: {damage} ({summary})"))
        else:
            click.echo(printable(f"sound: {summary}" if unread is None else f"not checked: {unread} ({summary})"))
        return UNREADABLE if unread is not None else DAMAGED if damage is not None else SOUND

    def _head(self, path: Path) -> None:
        if self._as_json:
            self._echo_json({"kind": "file", "path": str(path), "size_bytes": path.stat().st_size})
            return
        click.echo(printable(f"Dumping {path}"))
        if path.suffix == ".log":
            click.echo(f"Log starting offset: {_base_offset(path)}")
        elif path.suffix == ".checkpoint":
            click.echo(_snapshot_head(path.name))

    def _print_log(self, path: Path) -> tuple[str, str | None, str | None]:
        from ottla.cli.dump.job import PrintJob
        from ottla.cli.dump.printing import print_log

        name = "__cluster_metadata-0" if path.suffix == ".checkpoint" else path.absolute().parent.name
        job = PrintJob(str(path), self._records, self._as_json, self._decoder_for(name))
        found = print_log(job, _base_offset(path), _write, self._progress_of(path))
        return found.summary, found.damage, found.unread

    def _decoder_for(self, name: str) -> "Decoder | None":
        from ottla.cli.dump.decode import decoder_for

        return decoder_for(name, self._decoder)

    def _print_entries(self, path: Path) -> tuple[str, str | None]:
        from ottla.cli.dump.side_files import reader_of
        from ottla.printable import printable
        from ottla.protocol.errors import ProtocolError

        read = reader_of(path.name)
        content = small_files.read(str(path))
        assert read is not None
        count, damage = 0, None
        try:
            for text, fields in read(content):
                count += 1
                if self._as_json:
                    self._echo_json({"kind": "entry", **fields})
                else:
                    click.echo(printable(text))
        except ProtocolError as broken:
            damage = str(broken)
        else:
            damage = self._index_fault(path, content)
        return f"{count} entries, {len(content)} bytes", damage

    def _index_fault(self, path: Path, content: bytes) -> str | None:
        """Return the first entry that contradicts the `.log` of its segment. None if all agree, or without a `.log`."""
        from ottla.cli.dump.index_faults import offset_index_fault, time_index_fault
        from ottla.cli.read_only import ReadOnlyFile

        check = {".index": offset_index_fault, ".timeindex": time_index_fault}.get(path.suffix)
        log = path.with_suffix(".log")
        if check is None or not log.exists():
            return None
        with ReadOnlyFile(str(log)) as file:
            return check(content, int(path.stem), file)

    def _echo_json(self, fields: dict[str, Any]) -> None:
        import json

        click.echo(json.dumps(fields))

    def _progress_of(self, path: Path) -> Callable[[int, int], None] | None:
        if not self._progress:
            return None
        reported = 0

        def report(position: int, size_bytes: int) -> None:
            nonlocal reported
            if position - reported >= REPORT_EVERY_BYTES:
                complain(f"{path}: {100 * position // size_bytes} %")
                reported = position

        return report


def _write(text: bytes) -> None:
    click.echo(text, nl=False)


def _snapshot_head(name: str) -> str:
    from ottla.protocol.internal_topics.kraft_records import parse_snapshot_name

    snapshot = parse_snapshot_name(name)
    if snapshot is None:
        return "KRaft bootstrap snapshot"
    return f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}"


def _base_offset(path: Path) -> int:
    """Return the offset in a file's name, 0 without one."""
    digits = path.name.partition(".")[0].partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and path.suffix == ".log" else 0
