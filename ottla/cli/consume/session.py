"""The partitions that `ottla consume` reads, up to the end at the start or as they grow, and what it prints. shell"""

import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import click

from ottla.cli.consume.lines import json_line, text_line
from ottla.cli.consume.reader import ConsumedRecord, Span, TopicReader
from ottla.colours import OF_VERDICT, Style, is_coloured
from ottla.printable import printable, shell_line
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TopicPartition
from ottla.scan.cluster.listing import explain_refusal
from ottla.wire import SCHEME, Unanswered
from ottla.wire.address import KafkaAddress, connections_to
from ottla.wire.cluster import EARLIEST, LATEST, READ_COMMITTED, Cluster
from ottla.wire.topology import DELETED, Topology

PAUSE_S: Final = 0.2
WRITE_SIZE: Final = 64 * 1024


class Options(NamedTuple):
    """Options of the command. `partitions`: empty for all. `most`: None for all records."""

    topic: str
    partitions: tuple[int, ...]
    follow: bool
    committed_only: bool
    first_offset: int
    end_offset: int | None
    most: int | None
    whole: bool
    as_json: bool


class Session:
    """A run of the command."""

    def __init__(
        self, address: KafkaAddress, cluster: Cluster, options: Options, complain: Callable[[str], None]
    ) -> None:
        self._bootstrap = str(address).removeprefix(SCHEME)
        self._cluster = cluster
        self._options = options
        self._complain = complain
        topology = cluster.topology([options.topic], with_rights=True)
        check_topic(topology, options.topic)
        connections_to(address).keep(topology)
        known = sorted(topology.topics[options.topic])
        wrong = [number for number in options.partitions if number not in topology.topics[options.topic]]
        if wrong:
            raise Unanswered(f"topic {options.topic} has partitions 0 to {known[-1]}, not {wrong[0]}")
        self._places: list[TopicPartition] = [
            (options.topic, number) for number in sorted(set(options.partitions)) or known
        ]
        topic_id = topology.topic_ids[options.topic]
        self._reader = TopicReader(address, cluster, options.topic, topic_id, complain)
        self._next: dict[TopicPartition, int] = {}
        self._style = Style(is_coloured(sys.stdout))

    def run(self) -> None:
        """Print the records. Raises Unanswered, ProtocolError, and OSError for deleted records."""
        left = self._options.most
        for span in self._spans():
            records = self._reader.read(span, committed_only=self._options.committed_only)
            count = self._print(islice(records, left))
            left = None if left is None else left - count
            if left == 0:
                return

    def _print(self, records: Iterator[ConsumedRecord]) -> int:
        """Print records, many in one call. Those before an error are printed, too. Return their number."""
        count, held, held_size = 0, list[str](), 0
        try:
            for each in records:
                held.append(self._line(each))
                held_size += len(held[-1])
                count += 1
                if held_size >= WRITE_SIZE:
                    click.echo("\n".join(held))
                    held, held_size = [], 0
        finally:
            if held:
                click.echo("\n".join(held))
        return count

    def _line(self, each: ConsumedRecord) -> str:
        if self._options.as_json:
            return json_line(self._options.topic, each)
        return self._style(OF_VERDICT.get(each.fate, ""), text_line(each, whole=self._options.whole))

    def _spans(self) -> Iterator[Span]:
        """Yield unread offsets, with `--follow` without end."""
        while True:
            spans = self._list_spans()
            yield from spans
            if not self._options.follow:
                return
            if not spans:
                time.sleep(PAUSE_S)

    def _list_spans(self) -> list[Span]:
        """Return the unread offsets of each partition that has some."""
        begins_now = not self._next
        ends = self._offsets(LATEST)
        stable = self._offsets(LATEST, READ_COMMITTED)
        if begins_now:
            starts = self._offsets(EARLIEST)
            first = self._options.first_offset
            self._next = {
                place: max(starts[place], first if first >= 0 else ends[place] + first) for place in self._places
            }
        spans: list[Span] = []
        waiting: list[tuple[int, Span]] = []
        for place in self._places:
            end = ends[place] if self._options.end_offset is None else min(ends[place], self._options.end_offset)
            span = Span(place[1], self._next[place], end, ends[place], stable[place])
            if self._options.committed_only:
                span = span._replace(end=min(span.end, span.stable))
                if end > max(span.end, span.first):
                    waiting.append((end - max(span.end, span.first), span))
            if span.first < span.end:
                self._next[place] = span.end
                spans.append(span)
        if begins_now:
            self._report_held_back(waiting)
        return spans

    def _report_held_back(self, waiting: list[tuple[int, Span]]) -> None:
        """Report the partition with the most offsets that committed reads do not reach, and the number of others."""
        if not waiting:
            return
        count, span = max(waiting)
        words = ["ottla", "txn", "why", self._options.topic, str(span.partition), "-b", self._bootstrap]
        others = f" and {len(waiting) - 1} other partitions" if len(waiting) > 1 else ""
        self._complain(
            f"{count} offsets of {self._options.topic}-{span.partition} from {max(span.first, span.end)} on{others} "
            f"wait for an open transaction: {shell_line(words)}"
        )

    def _offsets(self, timestamp: int, isolation: int = 0) -> dict[TopicPartition, int]:
        found = self._cluster.offsets(self._places, timestamp, isolation)
        for place in self._places:
            if place not in found.offsets:
                reason = found.errors.get(place, "the topic was deleted while it was read")
                raise Unanswered(f"{place[0]}-{place[1]}: {reason}")
        return dict(found.offsets)


def check_topic(topology: Topology, topic: str) -> None:
    """Raise Unanswered with the reason if a topic does not exist or cannot be read."""
    if topology.errors.get(topic, ErrorCode.NONE) in DELETED:
        raise Unanswered(f"topic {topic} does not exist, or this user lacks DESCRIBE on it")
    if reason := explain_refusal(topology, topic):
        raise Unanswered(f"topic {topic}: {printable(reason)}")
