"""`ottla graduate`: move from Ottla to Apache Kafka with the same files. shell"""

import time
from pathlib import Path
from typing import Final

import click

from ottla import files
from ottla.broker.config import from_properties
from ottla.broker.ports.disk import RealDisk
from ottla.broker.ports.locks import LockHeld
from ottla.cli.graduate.config import config_problems, config_warnings, controller_endpoint
from ottla.cli.graduate.steps import CannotGraduate, Found, Graduation, elsewhere, is_at_home, read_state
from ottla.cli.output import fail
from ottla.printable import printable
from ottla.protocol.java.properties import decode_text
from ottla.scan.listing import UnreadableDirectory, check_log_directory

REFUSED, WRONG_FOLDER = 1, 2
# The highest metadata.version of each release (`MetadataVersion`).
RELEASES: Final = {"4.0": 25, "4.1": 27, "4.2": 29, "4.3": 30}


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--node-id", type=click.IntRange(0, 2**31 - 1), required=True, help="Id of the Kafka node.")
@click.option(
    "--config",
    "properties",
    metavar="server.properties",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="File that Kafka will be started with.",
)
@click.option("--release", type=click.Choice(list(RELEASES)), default="4.3", show_default=True, help="Kafka's release.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
def graduate(directory: Path, node_id: int, properties: str, release: str, dry_run: bool) -> None:
    """Turn a data directory into one that Apache Kafka 4 starts on.

    The directory must have been stopped cleanly. Partitions stay as they are; bootstrap.checkpoint and
    meta.properties are written, and the metadata log is kept under another name. `ottla serve` takes the directory back
    at any time. Exit codes: 0 done, 1 refused, 2 usage, or a folder that is no log directory.
    """
    try:
        check_log_directory(str(directory))
        _graduate(directory, node_id, properties, release, dry_run)
    except BrokenPipeError:
        raise  # the reader has closed the pipe: `| head`
    except UnreadableDirectory as problem:
        fail(WRONG_FOLDER, problem)
    except (CannotGraduate, OSError) as problem:
        fail(REFUSED, problem)


def _graduate(directory: Path, node_id: int, properties: str, release: str, dry_run: bool) -> None:
    disk = RealDisk()
    place = str(directory)
    text = decode_text(files.read_argument(properties))
    config = {setting.key: setting.text for setting in from_properties(text, properties)}
    try:
        lock = disk.lock(f"{place}/.lock")
    except LockHeld as held:
        raise CannotGraduate(f"{held}: stop the broker on {place} first") from held
    try:
        found = read_state(disk, place)
        _check(found, disk, directory, node_id, config)
        if is_at_home(found, node_id):
            click.echo(f"The metadata log of {place} was written by Apache Kafka, and stays as it is.")
        else:
            steps = Graduation(disk, place, found, node_id, RELEASES[release])
            if not dry_run:
                steps.run(controller_endpoint(config), round(time.time() * 1000))
            _print(steps, found, place, dry_run)
    finally:
        lock.release()
    _print_next(found, config, properties, release)


def _counts(found: Found) -> dict[str, int]:
    return {topic.name: topic.partition_count for topic in found.image.topics.values()}


def _check(found: Found, disk: RealDisk, directory: Path, node_id: int, config: dict[str, str]) -> None:
    missing = elsewhere(found, disk, str(directory))
    if missing:
        raise CannotGraduate(
            f"{len(missing)} partitions such as {missing[0]} are not in {directory}: serve it with Ottla, delete their "
            "topics, stop it and try again"
        )
    named = [part.strip() for part in config.get("log.dirs", config.get("log.dir", "")).split(",")]
    metadata = config.get("metadata.log.dir", named[0])
    match = len(named) == 1 and all(name and _same(name, directory) for name in (named[0], metadata))
    problems = config_problems(config, node_id, match, _counts(found))
    if problems:
        raise CannotGraduate("Kafka would not serve this directory as it is:\n" + "\n".join(f"  {p}" for p in problems))


def _same(name: str, directory: Path) -> bool:
    return Path(name).resolve() == directory.resolve()


def _print(steps: Graduation, found: Found, place: str, dry_run: bool) -> None:
    counts = _counts(found)
    click.echo(
        f"{place}: {len(counts)} topics, {sum(counts.values())} partitions, {len(steps.records)} metadata records."
    )
    if dry_run:
        click.echo(
            "Nothing was changed. Without --dry-run: bootstrap.checkpoint and meta.properties are written, if they"
        )
        click.echo("are not right already, and __cluster_metadata-0 is renamed, and a new one is created.")
        return
    for line in steps.done:
        click.echo(printable(f"  {line}"))
    click.echo("To undo this before Kafka has started, in that directory:")
    for line in steps.undo:
        click.echo(printable(f"  {line}"))


def _print_next(found: Found, config: dict[str, str], properties: str, release: str) -> None:
    for line in config_warnings(config, _counts(found)):
        click.echo(printable(f"Note: {line}"))
    click.echo(f"Next, with Apache Kafka {release} or later:")
    click.echo(f"  bin/kafka-server-start.sh {properties}")
    click.echo("and, for groups of the new protocol and other features that Ottla does not have:")
    click.echo(f"  bin/kafka-features.sh --bootstrap-server HOST:PORT upgrade --release-version {release}")
