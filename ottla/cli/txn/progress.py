"""Partitions of topics, and their open transactions, with a bar on a terminal. shell"""

import sys
from collections.abc import Sequence

import click

from ottla.protocol.values import TopicPartition
from ottla.verdict import OpenTransaction
from ottla.wire import Unanswered
from ottla.wire.cluster import Cluster
from ottla.wire.login import error_name
from ottla.wire.topology import DELETED, PARTITIONS_AT_ONCE


def list_places(cluster: Cluster, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
    """Return the partitions of these topics, or of all, and reasons why some are missing.

    Raises Unanswered if one of these topics has an error.
    """
    topology = cluster.topology(topics or None)
    for name in topics:
        if error := topology.errors.get(name):
            raise Unanswered(f"topic {name}: {error_name(error)}")
    gaps = [f"topic {name}: {error_name(error)}" for name, error in topology.errors.items() if error not in DELETED]
    return [(name, number) for name in sorted(topology.topics) for number in sorted(topology.topics[name])], gaps


def open_transactions(cluster: Cluster, places: Sequence[TopicPartition]) -> tuple[list[OpenTransaction], list[str]]:
    """Return the open transactions. Show the progress on stderr if it is a terminal and the requests are many."""
    if len(places) <= PARTITIONS_AT_ONCE or not sys.stderr.isatty():
        return cluster.open_transactions(places)
    with click.progressbar(length=len(places), label="asking partitions", file=sys.stderr, show_pos=True) as bar:
        return cluster.open_transactions(places, bar.update)
