from ottla.broker.log.leader_epoch_cache import LeaderEpochCache


def test_an_epoch_begins_with_its_first_batch():
    epochs = LeaderEpochCache()
    epochs.assign(1, 0)
    epochs.assign(1, 5)
    epochs.assign(3, 8)
    assert epochs.entries == [(1, 0), (3, 8)]
    assert epochs.latest_epoch == 3


def test_entries_that_contradict_a_new_one_go():
    epochs = LeaderEpochCache([(1, 0), (3, 8), (4, 12)])
    epochs.assign(3, 9)
    assert epochs.entries == [(1, 0), (3, 9)]
    epochs.assign(5, 9)
    assert epochs.entries == [(1, 0), (5, 9)]


def test_changes_are_marked():
    epochs = LeaderEpochCache([(1, 0)])
    assert not epochs.changed
    epochs.assign(1, 7)
    epochs.assign(-1, 7)
    epochs.truncate_from_end(8)
    epochs.truncate_from_start(0)
    assert not epochs.changed
    epochs.assign(2, 7)
    assert epochs.changed
    epochs.mark_clean()
    assert not epochs.changed
    epochs.truncate_from_end(7)
    assert epochs.changed
    epochs.assign(2, 7)
    assert not epochs.changed


def test_end_offsets():
    epochs = LeaderEpochCache([(2, 10), (4, 20), (5, 30)])
    assert epochs.end_offset_for(5, 44) == (5, 44)
    assert epochs.end_offset_for(4, 44) == (4, 30)
    assert epochs.end_offset_for(3, 44) == (2, 20)
    assert epochs.end_offset_for(1, 44) == (1, 10)
    assert epochs.end_offset_for(6, 44) == (-1, -1)
    assert epochs.end_offset_for(-1, 44) == (-1, -1)
    assert LeaderEpochCache().end_offset_for(0, 44) == (-1, -1)


def test_epochs_of_offsets():
    epochs = LeaderEpochCache([(2, 10), (4, 20)])
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 4]


def test_truncation_from_the_end_drops_what_begins_there():
    epochs = LeaderEpochCache([(2, 10), (4, 20), (5, 30)])
    epochs.truncate_from_end(20)
    assert epochs.entries == [(2, 10)]
    assert epochs.latest_epoch == 2


def test_truncation_from_the_start_keeps_the_epoch_that_holds_it():
    epochs = LeaderEpochCache([(2, 10), (4, 20), (5, 30)])
    epochs.truncate_from_start(25)
    assert epochs.entries == [(4, 25), (5, 30)]
    epochs.truncate_from_start(30)
    assert epochs.entries == [(5, 30)]
    epochs.truncate_from_start(30)
    assert epochs.entries == [(5, 30)]
