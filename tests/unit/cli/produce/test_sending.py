"""Records on their way: how many at once, and the line that is refused first."""

import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from ottla.cli.produce import sending
from ottla.cli.produce.lines import BadLine, Line
from ottla.cli.produce.sending import LineRefused, Window, send_plain


class Future:
    def __init__(self, producer, error):
        self._producer, self._error = producer, error
        producer.on_the_way += 1

    def get(self, timeout):
        self._producer.on_the_way -= 1
        if self._error is not None:
            raise self._error


class Producer:
    """A producer that refuses some values, and counts the records that were not waited for."""

    def __init__(self, refused=()):
        self._refused = dict(refused)
        self.on_the_way = self.most = 0

    def send(self, topic, value, **_):
        if value == b"now":
            raise KafkaTimeoutError("no memory")
        future = Future(self, self._refused.get(value))
        self.most = max(self.most, self.on_the_way)
        return future


def lines_of(*values):
    return iter([Line(number, None, value) for number, value in enumerate(values, 1)])


def test_an_error_names_the_first_line_that_is_refused_and_later_ones_are_counted():
    window = Window(Producer({b"b": MessageSizeTooLargeError(), b"c": KafkaTimeoutError("late")}), "t", 1, 1)
    with pytest.raises(LineRefused, match="a record of 1 bytes is above") as refused:
        send_plain(window, lines_of(b"a", b"b", b"c", b"d", b"e"))
    assert (refused.value.number, window.written) == (2, 1)
    assert (window.drain(), window.written) == (2, 3)


def test_a_line_that_cannot_be_sent_is_refused():
    window = Window(Producer(), "t", 1, 1)
    with pytest.raises(LineRefused, match="may be written or not") as refused:
        send_plain(window, lines_of(b"a", b"now"))
    assert (refused.value.number, window.drain()) == (2, 1)


def test_a_refused_line_before_a_bad_one_is_the_error():
    def lines():
        yield from lines_of(b"a", b"b")
        raise BadLine(3, "bad")

    with pytest.raises(LineRefused) as refused:
        send_plain(Window(Producer({b"b": KafkaTimeoutError("late")}), "t", 1, 1), lines())
    assert refused.value.number == 2


@pytest.mark.parametrize(("name", "limit", "most"), [("MOST_RECORDS", 3, 4), ("MOST_BYTES", 10, 3)])
def test_few_records_are_on_the_way_at_once(monkeypatch, name, limit, most):
    monkeypatch.setattr(sending, name, limit)
    producer = Producer()
    window = Window(producer, "t", 1, 1)
    send_plain(window, lines_of(*[b"four"] * 20))
    assert (producer.most, producer.on_the_way, window.written) == (most, 0, 20)
