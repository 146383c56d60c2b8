"""Truncated files and flipped bits; `python -m lab.crash damage` takes every byte and every bit.

CI takes bytes of some batches of the 256 KiB log, and a share of the bytes and bits of the 16 KiB one.
"""

import pytest

from lab.crash.damages import Damage, Kind, Outcome, StoppedLog, sweep
from lab.crash.logs import PARTITION, Shape

LARGE = Shape(262_144, 1_500)
SMALL = Shape(16_384, 300)
ROLLED = Shape(16_384, 300, segment_bytes=6_000)
BATCHES = 2
EVERY_BYTE = 37
EVERY_BIT = 111


@pytest.fixture(scope="module", params=[0, 40, None], ids=["not synced", "partly synced", "all synced"])
def small(request):
    return StoppedLog(SMALL, request.param)


@pytest.fixture(scope="module")
def unsynced_log():
    return StoppedLog(SMALL, 0)


def around(batches):
    """Return every cut of the headers of some batches and some of their records, and cuts near borders of others."""
    for number, batch in enumerate(batches):
        if number % (len(batches) // BATCHES) == 1:
            wanted = [*range(80), *range(80, batch.size_bytes, 29)]
        else:
            wanted = () if number % 3 else (0, 1, 11, 12, 60, 61, -1)
        yield from (batch.position + at % batch.size_bytes for at in wanted)


def test_a_large_log_is_served_up_to_its_last_whole_batch():
    scene = StoppedLog(LARGE, 0)
    path = scene.path("log")
    met, wrong = sweep(scene, (Damage(path, Kind.CUT, at) for at in around(scene.sound.batches)))
    assert wrong == []
    assert list(met) == [Outcome.CUT]


def test_a_log_that_was_cut_is_served_up_to_its_last_whole_batch_or_not_at_all(small):
    path = small.path("log")
    met, wrong = sweep(small, (each for each in small.damages(path, Kind.CUT) if each.at % EVERY_BYTE == 0))
    assert wrong == []
    assert (Outcome.CUT in met) is (small.recovery_point <= 40)
    assert (Outcome.OFFLINE in met) is (small.recovery_point > 0)


def test_a_log_is_cut_where_a_page_never_came(small):
    """Only an unsynced log is cut: zeros from a page's or batch's start on, with or without later sound batches."""
    met, wrong = sweep(small, small.damages(small.path("log"), Kind.HOLE))
    assert wrong == []
    assert (Outcome.CUT in met) is (small.recovery_point <= 40)
    assert (Outcome.OFFLINE in met) is (small.recovery_point > 0)


@pytest.mark.parametrize("shape", [SMALL, ROLLED], ids=["one segment", "three segments"])
def test_no_flipped_bit_of_a_log_that_is_recovered_is_served(shape):
    scene = StoppedLog(shape, 0)
    path = scene.path("log")
    met, wrong = sweep(scene, (each for each in scene.damages(path, Kind.FLIP) if each.at % EVERY_BIT == 0))
    assert wrong == []
    assert met[Outcome.OFFLINE] > 20 * met[Outcome.WHOLE] > 0  # the leader epoch, which no CRC covers


def test_every_bit_of_the_last_batch(unsynced_log):
    """Behind it nothing shows that it was whole once, so it is cut off like a torn write; its offset is checked too."""
    last = unsynced_log.sound.batches[-1]
    bits = range(last.position * 8, (last.position + last.size_bytes) * 8)
    met, wrong = sweep(unsynced_log, (Damage(unsynced_log.path("log"), Kind.FLIP, bit) for bit in bits))
    assert wrong == []
    assert met[Outcome.CUT] > met[Outcome.WHOLE] == 32


@pytest.mark.parametrize("kind", [Kind.CUT, Kind.FLIP], ids=["cut", "flipped"])
@pytest.mark.parametrize(
    "name", [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata"]
)
def test_damaged_files_next_to_a_log_cause_no_wrong_records(unsynced_log, name, kind):
    paths = [path for path in unsynced_log.files if path.startswith(PARTITION) and path.endswith(name)]
    damages = (each for path in paths for each in unsynced_log.damages(path, kind) if each.at % 5 == 0)
    met, wrong = sweep(unsynced_log, damages)
    assert wrong == []
    assert met.keys() <= {Outcome.WHOLE, Outcome.SET_ASIDE}


@pytest.mark.parametrize("kind", [Kind.CUT, Kind.FLIP], ids=["cut", "flipped"])
@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
     "meta.properties"],
)  # fmt: skip
def test_a_damaged_checkpoint_is_harmless_or_reported(small, name, kind):
    met, wrong = sweep(small, small.damages(f"/data/{name}", kind))
    assert wrong == []
    assert met.keys() <= {Outcome.WHOLE, Outcome.REFUSED, Outcome.OFFLINE}
