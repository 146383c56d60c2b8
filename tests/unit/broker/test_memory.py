"""The memory budget: requests that wait and requests that do not. None waits for ever."""

import random

import pytest

from ottla.broker.memory import FREE_BYTES, Memory, TooLarge
from ottla.broker.turns import Turns

MIB = 1 << 20


class Builder:
    """A handler that builds a reply of `size_bytes` in steps."""

    def __init__(self, table, size_bytes, step_bytes=256 * 1024):
        self.table = table
        self.size_bytes = size_bytes
        self.step_bytes = step_bytes
        self.room = None
        self.failed = None
        self.activity = None
        self.activity = table.turns.start(self.build(), self.on_result, self.on_bug)

    async def build(self):
        room = self.table.memory.replies.reserve()
        built = 0
        while built < self.size_bytes:
            built = min(self.size_bytes, built + self.step_bytes)
            await room.grow(built)
        room.built(self.size_bytes)
        return room

    def on_result(self, room):
        self.activity = None
        self.room = room

    def on_bug(self, error):
        self.failed = error

    @property
    def waits(self):
        return self.room is None and self.failed is None

    def sent(self):
        """Send the reply if it is built. Return whether it was."""
        if self.room is not None:
            self.room.built(0)
        return self.room is not None


class Table:
    def __init__(self, limit_bytes=16 * MIB):
        self.later = []
        self.turns = Turns(self.later.append, self.bug)
        self.memory = Memory(self.turns, limit_bytes)
        self.granted = []

    def bug(self, error):
        raise error

    def claim(self, size_bytes):
        claim = self.memory.requests.reserve(size_bytes, lambda: self.granted.append(claim))
        return claim

    def run(self):
        while self.later:
            due, self.later[:] = self.later[:], []
            for callback in due:
                self.turns.event(callback)


def test_a_request_that_fits_is_let_in_at_once():
    table = Table()
    assert table.claim(8 * MIB).granted
    assert not table.claim(1).granted


def test_waiting_requests_are_admitted_in_order_of_arrival():
    table = Table()
    first, large, small = table.claim(6 * MIB), table.claim(4 * MIB), table.claim(MIB)
    assert not small.granted  # it would fit, but the larger one would wait for ever after such requests
    first.release()
    table.run()
    assert table.granted == [large, small]


def test_a_request_larger_than_all_the_memory_is_let_in_alone():
    table = Table()
    other, large = table.claim(MIB), table.claim(100 * MIB)
    assert not large.granted
    other.release()
    assert large.granted
    assert not table.claim(1).granted


def test_a_request_that_stops_waiting_admits_the_next_one():
    table = Table()
    table.claim(5 * MIB)
    large, small = table.claim(4 * MIB), table.claim(MIB)
    large.release()
    assert small.granted


def test_recallable_memory_is_recalled_when_a_request_waits():
    table = Table()
    recalled = []
    lent = table.memory.requests.reserve_recallable(3 * MIB, lambda: (recalled.append(1), lent.release()))
    waiting = table.claim(7 * MIB)
    table.run()
    assert recalled == [1]
    assert waiting.granted


def test_recallable_memory_is_at_most_half_and_none_while_a_request_waits():
    table = Table()
    assert table.memory.requests.reserve_recallable(5 * MIB, list) is None
    table.claim(8 * MIB)
    table.claim(1)
    assert table.memory.requests.reserve_recallable(1, list) is None


def test_a_medium_request_does_not_wait_for_large_ones():
    table = Table()
    large = [table.memory.reserve(5 * MIB, list) for _ in range(3)]
    middle = [table.memory.reserve(MIB, list) for _ in range(3)]
    assert [claim.granted for claim in large] == [True, False, False]
    assert [claim.granted for claim in middle] == [True, True, False]
    middle[0].release()
    assert middle[2].granted and table.memory.short
    large[0].release()
    large[1].release()
    large[2].release()
    assert not table.memory.short


def test_requests_of_middle_size_take_what_large_ones_do_not_need():
    table = Table()
    middle = [table.memory.reserve(2 * MIB, list) for _ in range(5)]
    assert [claim.granted for claim in middle] == [True, True, True, True, False]
    large = table.memory.reserve(5 * MIB, list)
    for claim in middle[:4]:
        claim.release()
    assert large.granted and middle[4].granted
    assert table.memory.requests.held_bytes + table.memory.medium.held_bytes <= 8 * MIB


def test_recallable_medium_memory_is_recalled_for_a_medium_request():
    table = Table()
    recalled = []
    lent = table.memory.reserve_recallable(MIB, lambda: (recalled.append(1), lent.release()))
    large = table.memory.requests.reserve(6 * MIB, list)
    waiting = table.memory.reserve(2 * MIB, list)
    table.run()
    assert recalled == [1] and waiting.granted and large.granted


def test_a_small_reply_is_not_counted():
    table = Table()
    builder = Builder(table, FREE_BYTES)
    assert builder.room.held_bytes == 0
    assert table.memory.replies.held_bytes == 0


def test_a_reply_is_counted_until_its_reservation_is_dropped():
    table = Table()
    builder = Builder(table, MIB)
    assert table.memory.replies.held_bytes == MIB
    builder.room = None
    assert table.memory.replies.held_bytes == 0


def test_a_reply_above_the_reply_limit_is_too_large():
    table = Table()
    builder = Builder(table, 4 * MIB + 1)
    assert isinstance(builder.failed, TooLarge)
    assert "queued.max.request.bytes" in str(builder.failed)
    builder.failed = None  # its traceback holds the handler
    assert table.memory.replies.held_bytes == 0


def test_a_reply_waits_for_those_that_are_not_sent():
    table = Table()
    unsent = [Builder(table, 2 * MIB) for _ in range(4)]
    last = Builder(table, MIB)
    assert last.waits
    assert unsent.pop(0).sent()
    table.run()
    assert not last.waits


def test_replies_that_grow_side_by_side_all_end():
    table = Table()
    builders = [Builder(table, 4 * MIB, 64 * 1024) for _ in range(40)]
    for _ in range(40):
        table.run()
        builders = [builder for builder in builders if not builder.sent()]
    assert not builders


def test_a_reply_that_is_given_up_lets_the_next_one_grow():
    table = Table()
    unsent = [Builder(table, 2 * MIB) for _ in range(4)]
    first, second = Builder(table, 2 * MIB), Builder(table, 2 * MIB)
    first.activity.discard()
    assert all(builder.sent() for builder in unsent)
    table.run()
    assert second.sent()
    assert table.memory.replies.held_bytes == 0


@pytest.mark.parametrize("seed", range(30))
def test_random_requests_and_replies_are_all_served_and_free_their_memory(seed):
    rng = random.Random(seed)
    table = Table(rng.choice((4, 16, 64)) * MIB)
    most = table.memory.replies.limit_bytes
    builders, claims = [], []
    for _ in range(200):
        match rng.randrange(5):
            case 0:
                builders.append(Builder(table, rng.randrange(1, most // 2), rng.choice((10_000, 100_000, 1_000_000))))
            case 1:
                claim = table.claim if rng.random() < 0.5 else lambda size: table.memory.reserve(size, list)
                claims.append(claim(rng.choice((rng.randrange(FREE_BYTES, MIB), rng.randrange(FREE_BYTES, 2 * most)))))
            case 2 if builders:
                builder = builders.pop(rng.randrange(len(builders)))
                if not builder.sent():
                    builder.activity.discard()
            case 3 if claims:
                claims.pop(rng.randrange(len(claims))).release()
            case _:
                table.run()
        assert table.memory.replies.held_bytes <= most
    for _ in range(1000):  # served requests leave
        table.run()
        builders = [builder for builder in builders if not builder.sent()]
        for claim in [claim for claim in claims if claim.granted]:
            claim.release()
            claims.remove(claim)
    assert not claims
    assert not builders
    memory = table.memory
    assert (memory.requests.held_bytes, memory.medium.held_bytes, memory.replies.held_bytes) == (0, 0, 0)
    assert not table.memory.short
