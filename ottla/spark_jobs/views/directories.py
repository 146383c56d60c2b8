"""The partitions of the paths of a read: log directories, or the address of a cluster. shell

Several log directories are read as one: the `log.dirs` of a broker, or one directory of each broker of a cluster.

Each partition must be in only one of them: its copies have the same records, and no option selects a copy.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.scan import schemas, storage
from ottla.scan.listing import (
    PartitionLog,
    UnreadableDirectory,
    describe_missing_topics,
    list_partitions,
    read_cluster_id,
    select_topics,
)
from ottla.spark_jobs.options import OptionError, Options
from ottla.wire import is_kafka_address

if TYPE_CHECKING:
    from ottla.wire.address import KafkaAddress

_log = logging.getLogger("ottla.spark_jobs")
_CLIENT_ID = "ottla-read"

# Rows of these views name the file or the folder, which distinguishes copies.
_SHOW_COPIES = (schemas.PARTITIONS, schemas.SEGMENTS, schemas.DAMAGE)


def partitions_of(options: Options, patterns: tuple[str, ...], *, warn: bool) -> dict[str, list[PartitionLog]]:
    """Return the partitions of topics that match, by directory. Raises UnreadableDirectory, or OptionError for copies.

    `warn`: log the patterns that match no topic; if none matches any of a cluster, raise UnreadableDirectory.
    """
    found = {}
    everything: list[PartitionLog] = []
    address = address_of(options)
    for directory in options.paths:
        listed = list_partitions(directory) if address is None else _list_cluster(address, patterns, must_match=warn)
        everything += listed
        logs = select_topics(listed, patterns)
        found[directory] = [log for log in logs if options.partitions is None or log.partition in options.partitions]
    if warn and (unmatched := describe_missing_topics(everything, patterns)):
        _log.warning("%s: %s", ", ".join(map(storage.hide_secrets, options.paths)), unmatched)
    if len(found) > 1:
        _check_one_cluster(options.paths)
        if options.view not in _SHOW_COPIES:
            _check_no_copies(found)
    return found


def address_of(options: Options) -> "KafkaAddress | None":
    """Return the cluster to read, None for directories. Raises OptionError."""
    if not is_kafka_address(options.paths[0]):
        return None
    from ottla.wire.address import parse_kafka_address  # and the connection, which directories do not need
    from ottla.wire.client_properties import client_options

    try:
        client_options(Path(options.command_config) if options.command_config else None)
        return parse_kafka_address(options.paths[0])._replace(properties=options.command_config, client_id=_CLIENT_ID)
    except ValueError as error:
        raise OptionError(str(error).replace("--command-config FILE", "option command.config")) from None


def _list_cluster(address: "KafkaAddress", patterns: Sequence[str], *, must_match: bool) -> list[PartitionLog]:
    """List the partitions of topics that match; none: all that users can read. Raises UnreadableDirectory."""
    from ottla.scan.cluster.listing import list_cluster_partitions

    served = list_cluster_partitions(address, patterns, must_match=must_match)
    chosen = select_topics([one.log for one in served], tuple(patterns))
    for one in served:
        if one.unread and one.log in chosen:
            raise UnreadableDirectory(f"{address}: {one.log.name} cannot be read: {one.unread}")
    return chosen


def in_order(found: dict[str, list[PartitionLog]]) -> list[PartitionLog]:
    """Return the partitions of all directories, sorted by topic and partition."""
    return sorted((log for logs in found.values() for log in logs), key=lambda log: (log.topic, log.partition))


def _check_one_cluster(directories: tuple[str, ...]) -> None:
    """Refuse directories of two clusters: equal topics and producer ids are unrelated. Copies may lack a cluster id."""
    ids = {directory: read_cluster_id(directory) for directory in directories}
    named = {cluster: directory for directory, cluster in ids.items() if cluster}
    if len(named) > 1:
        names = ", ".join(f"{storage.hide_secrets(directory)} of {cluster}" for cluster, directory in named.items())
        raise OptionError(
            f"log directories of several clusters cannot be read together: {names}; read each, and union() them"
        )


def _check_no_copies(found: dict[str, list[PartitionLog]]) -> None:
    first: dict[str, str] = {}
    for directory, logs in found.items():
        twice = [log.name for log in logs if log.name in first]
        if twice:
            more = f" and {len(twice) - 1} more" if len(twice) > 1 else ""
            both = f"{storage.hide_secrets(first[twice[0]])} and {storage.hide_secrets(directory)}"
            raise OptionError(
                f"{twice[0]}{more} in both {both}: copies of a partition have the same records, so load one of the "
                f"directories, or name other topics or partitions (the views {', '.join(_SHOW_COPIES)} show all copies)"
            )
        first |= {log.name: directory for log in logs}
