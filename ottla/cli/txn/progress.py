"""Open transactions of many partitions, with a bar on a terminal. shell"""

import sys
from collections.abc import Sequence

import click

from ottla.protocol.values import TopicPartition
from ottla.verdict import OpenTransaction
from ottla.wire.cluster import Cluster
from ottla.wire.topology import PARTITIONS_AT_ONCE


def open_transactions(cluster: Cluster, places: Sequence[TopicPartition]) -> tuple[list[OpenTransaction], list[str]]:
    """Return the open transactions. Show the progress on stderr if it is a terminal and the requests are many."""
    if len(places) <= PARTITIONS_AT_ONCE or not sys.stderr.isatty():
        return cluster.open_transactions(places)
    with click.progressbar(length=len(places), label="asking partitions", file=sys.stderr, show_pos=True) as bar:
        return cluster.open_transactions(places, bar.update)
