"""A proxy that knows which transactional batch is new, which is a retry, and which takes the sequences of another.

A retry carries the record that was sent with its base sequence before, by the same producer id and epoch; a reuse
carries another one. So the values that are sent must be unique.
"""

import threading
import time
from collections import Counter
from enum import Enum
from typing import NamedTuple

from in_the_log.through import Through

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import iter_records
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import parse_request_header
from ottla.protocol.requests.produce_wire import decode_produce_request

AWAY_S = 0.6  # how long the network stays broken, unless somebody says when it is back


class Sort(Enum):
    NEW = "new"
    RETRY = "retry"
    LATE_RETRY = "retry behind the end of its transaction"
    REUSE = "reuse"
    BEHIND = "in the transaction of a reuse, behind it"


class Seen(NamedTuple):
    """A transactional batch on its way: where it goes and who sent it, its base sequence, what it is, what was it."""

    place: tuple
    sequence: int
    sort: Sort
    was_written: bool
    values: tuple


class Noted(NamedTuple):
    """A request, remembered for its reply."""

    api_key: int
    version: int
    batches: list


class Loss(Enum):
    """Ways to lose the reply to a Produce request that the broker has executed."""

    SWALLOW = "swallow"  # it never comes; the connection breaks after a while
    CUT = "cut"  # the connection breaks at once
    KILL = "kill -9"
    RESTART = "restart"
    SHORT_CUT = "cut, and connected again"
    SILENCE = "report_missing_markers, and the connection stays"
    DELAY = "delayed"


ENDS_OF_THE_BROKER = frozenset({Loss.KILL, Loss.RESTART})


class Watch(Through):
    """Counts by `Sort`: batches in `sent`, those of which the first was written in `of_written`, `refused` with 59.

    `errors` counts (sort, error) of all replies. `lose_next` arms one loss; `chance` may deal more: it is called for
    every reply to a Produce request and returns a `Loss` or None. `broken` is set when connections were broken by it.
    """

    def __init__(self, broker, away_s=AWAY_S):
        self.broker, self.away_s = broker, away_s
        self.sent, self.of_written, self.errors = Counter(), Counter(), Counter()
        self.chance = lambda: None
        self.broken = threading.Event()
        self._armed = None
        self._values = {}  # (place, sequence) -> (value, transaction number, whether it is known to be written)
        self._reused = {}  # place -> transaction number
        self._transactions = Counter()  # (producer id, epoch) -> ends that were asked for
        self._counting = threading.Lock()
        self._restarting = threading.Lock()
        host, _, port = broker.bootstrap.rpartition(":")
        super().__init__(host, int(port))

    @property
    def refused(self):
        code = ErrorCode.UNKNOWN_PRODUCER_ID
        return Counter({sort: count for (sort, error), count in self.errors.items() if error == code})

    @property
    def refused_in_error(self):
        """Batches that were refused though they are honest."""
        return self.refused.total() - self.refused[Sort.REUSE] - self.refused[Sort.BEHIND]

    def lose_next(self, loss):
        self.broken.clear()
        self._armed = loss

    def on_request(self, frame):
        header, body = parse_request_header(memoryview(frame))
        batches = []
        if header.api_key == ApiKey.PRODUCE:
            with self._counting:
                batches = list(self._batches(header.api_version, body))
                self.sent.update(seen.sort for seen in batches)
                self.of_written.update(seen.sort for seen in batches if seen.was_written)
        elif header.api_key == ApiKey.END_TXN:
            end = codec.decode_request(header.api_key, header.api_version, body)
            with self._counting:
                self._transactions[end.producer_id, end.producer_epoch] += 1
        return Noted(header.api_key, header.api_version, batches)

    def _batches(self, version, body):
        request = decode_produce_request(version, body)
        for number, (name, partitions) in enumerate(request.topics):
            topic = name or request.topic_ids[number]
            for partition, records in partitions:
                for position, header in iter_batches(records):
                    if header.is_transactional:
                        values = tuple(record.value for record in iter_records(records, header, position))
                        place = (topic, partition, header.producer_id, header.producer_epoch)
                        yield self._classify(place, header.base_sequence, values)

    def _classify(self, place, sequence, values):
        number = self._transactions[place[2:]]
        reused_in = self._reused.get(place)
        known, of_number, was_written = self._values.get((place, sequence), (None, None, False))
        if known is not None and known != values[0]:
            sort = Sort.REUSE
            self._reused[place] = number
        elif reused_in == number:
            sort = Sort.BEHIND
        elif known is None:
            sort = Sort.NEW
        else:
            sort = Sort.RETRY if number == of_number else Sort.LATE_RETRY
        if sort is not Sort.REUSE or not was_written:
            for offset, value in enumerate(values):
                self._values[place, sequence + offset] = value, number, was_written
        return Seen(place, sequence, sort, was_written, values)

    def on_reply(self, frame, noted):
        if noted is None or noted.api_key != ApiKey.PRODUCE:
            return frame
        self._count_reply(frame, noted)
        loss, self._armed = self._armed, None
        return self._suffer(loss or self.chance(), frame)

    def _count_reply(self, frame, noted):
        _, reply = codec.decode_response(noted.api_key, noted.version, frame)
        codes = [row.error_code for topic in reply.responses for row in topic.partition_responses]
        with self._counting:
            for seen, code in zip(noted.batches, codes, strict=False):
                self.errors[seen.sort, code] += 1
                if code == 0 and seen.sort is not Sort.REUSE:
                    for offset, value in enumerate(seen.values):
                        _, number, _ = self._values[seen.place, seen.sequence + offset]
                        self._values[seen.place, seen.sequence + offset] = value, number, True

    def _suffer(self, loss, frame):
        if loss is None:
            return frame
        match loss:
            case Loss.DELAY:
                time.sleep(0.15)
                return frame
            case Loss.SILENCE:
                return None
            case Loss.SHORT_CUT:
                raise EOFError
            case Loss.SWALLOW:
                threading.Timer(0.2, self._break).start()
                return None
            case Loss.CUT:
                self._break()
            case Loss.KILL | Loss.RESTART:
                if not self._restarting.locked():
                    threading.Thread(target=self._again, args=[loss]).start()
        raise EOFError

    def _break(self):
        self.hang_up(self.away_s)
        self.broken.set()

    def _again(self, loss):
        with self._restarting:
            self._break()
            if loss is Loss.KILL:
                self.broker.kill()
            else:
                self.broker.stop()
            time.sleep(AWAY_S)
            self.broker.start()

    def settle(self):
        """Wait until a broker that was ended is back."""
        with self._restarting:
            pass
