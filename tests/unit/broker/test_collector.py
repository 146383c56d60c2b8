"""Objects that the garbage collector visits in a broker that holds many."""

import gc
import weakref

import pytest

from ottla.broker.collector import FREEZE_ABOVE, THRESHOLDS, Collector


class Held:
    """A container object, as the collector counts them."""


@pytest.fixture
def collector():
    was_enabled = gc.isenabled()
    collector = Collector()
    collector.start()
    gc.disable()  # collections happen where the test wants them
    yield collector
    collector.stop()
    if was_enabled:
        gc.enable()


def in_sight():
    """Count the objects of this test that a full collection visits. Objects of other tests do not count."""
    return sum(type(each) is Held for each in gc.get_objects())


def test_objects_that_exist_at_the_start_are_frozen(collector):
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects(2)) < FREEZE_ABOVE


def test_many_survivors_of_a_full_collection_are_frozen_by_it(collector):
    held = [Held() for _ in range(2 * FREEZE_ABOVE)]
    assert in_sight() == len(held)
    gc.collect()
    assert in_sight() == 0


def test_a_few_survivors_of_a_full_collection_are_not_frozen(collector):
    held = [Held() for _ in range(FREEZE_ABOVE // 10)]
    gc.collect()
    assert in_sight() == len(held)


def test_young_collections_freeze_nothing(collector):
    held = [Held() for _ in range(2 * FREEZE_ABOVE)]
    gc.collect(0)
    gc.collect(1)
    assert in_sight() == len(held)


def test_frozen_objects_are_freed_with_their_last_reference(collector):
    held = [Held() for _ in range(2 * FREEZE_ABOVE)]
    last = weakref.ref(held[-1])
    gc.collect()
    assert in_sight() == 0
    held.clear()
    assert last() is None


def test_a_full_collection_visits_few_objects_while_many_are_created(collector):
    seen = []

    def note(phase, info):
        if phase == "start" and info["generation"] == 2:
            seen.append(in_sight())

    gc.callbacks.append(note)
    gc.enable()
    held = [Held() for _ in range(20 * FREEZE_ABOVE)]
    gc.disable()
    gc.callbacks.remove(note)
    youngest, middle, oldest = (threshold + 1 for threshold in THRESHOLDS)
    assert len(seen) > 5 and len(held) > max(seen) > FREEZE_ABOVE
    assert max(seen) <= FREEZE_ABOVE + youngest * middle * oldest < 3 * FREEZE_ABOVE


def test_cycles_among_what_is_new_are_still_found(collector):
    gc.collect()
    for _ in range(100):
        cycle = []
        cycle.append(cycle)
    del cycle
    assert gc.collect() >= 100


def test_stop_shows_the_collector_everything_again(collector):
    collector.stop()
    assert gc.get_freeze_count() == 0
