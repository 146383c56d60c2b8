"""Answers without what differs from run to run: producer ids become symbols, clocks become "clock"."""

import time

from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import iter_records

FOREIGN_FROM = 900_000_000_000
# The script's clock began so long before the broker's that the two cannot be mistaken, and is younger than any expiry.
CLOCK_BEHIND_MS = 3_600_000
CLOCK_SPAN_MS = 1_000_000
PADDING = "."


class Answers:
    """The symbols of one script."""

    def __init__(self):
        self._symbols = {}
        self._clock_ms = int(time.time() * 1000) - CLOCK_BEHIND_MS
        self._ticks = 0

    def foreign(self, number):
        return FOREIGN_FROM + number * 1000

    def producer(self, producer_id):
        if producer_id < 0 or producer_id >= FOREIGN_FROM:
            return producer_id if producer_id < 0 else f"X{producer_id - FOREIGN_FROM}"
        return self._symbols.setdefault(producer_id, f"P{len(self._symbols)}")

    def known(self, producer_id):
        """The symbol, or None of a producer that the script has not met."""
        if producer_id < 0 or producer_id >= FOREIGN_FROM:
            return self.producer(producer_id)
        return self._symbols.get(producer_id)

    def next_timestamp(self):
        self._ticks += 1
        return self._clock_ms + self._ticks - 1

    def clock_at(self, ticks):
        return self._clock_ms + ticks

    def timestamp(self, timestamp_ms):
        ticks = timestamp_ms - self._clock_ms
        if timestamp_ms < 0:
            return timestamp_ms
        return f"T+{ticks}" if 0 <= ticks < CLOCK_SPAN_MS else "clock"

    def transaction(self, row):
        """A row of DescribeTransactions. The partitions are by number: the script has one topic."""
        partitions = sorted(
            topic.topic if topic.topic.startswith("__") else str(index)
            for topic in row.topics
            for index in topic.partitions
        )
        started = row.transaction_start_time_ms
        return [
            ErrorCode(row.error_code).name,
            row.transaction_state,
            row.transaction_timeout_ms,
            "clock" if started > 0 else started,
            self.producer(row.producer_id),
            row.producer_epoch,
            partitions,
        ]

    def producers(self, row):
        """The producers of a row of DescribeProducers, in the order of their symbols."""
        return sorted(
            (
                [
                    str(self.producer(each.producer_id)),
                    each.producer_epoch,
                    each.last_sequence,
                    self.timestamp(each.last_timestamp),
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                ]
                for each in row.active_producers
            ),
            key=str,
        )


def records_of(data, answers):
    """A row for each batch: offsets, producer, epoch, sequence, what it is, and its values or its marker."""
    rows = []
    for position, header in iter_batches(memoryview(data or b"")):
        row = [header.base_offset, header.last_offset, answers.producer(header.producer_id), header.producer_epoch]
        row += [header.base_sequence, header.attributes, header.partition_leader_epoch]
        if header.is_control:
            marker = read_marker(data, header, position)
            row.append(["COMMIT" if marker.control_type else "ABORT", marker.coordinator_epoch])
        else:
            row.append([record.value.decode().rstrip(PADDING) for record in iter_records(data, header, position)])
        rows.append(row)
    return rows
