"""Random logs of producers that also do what they may not do."""

from ottla.protocol.batch import build_marker


def write_wild_log(log, chance):
    """Mostly sound sequences and epochs, now and then a gap, a duplicate, a zombie, missing offsets, a long pause."""
    sequences, epochs, coordinator, now = {}, {}, 1, 1_700_000_000_000
    for _ in range(chance.choice([10, 60, 150])):
        producer = chance.randrange(4)
        now += chance.choice([1, 50, 50, 90_000_000 if chance.random() < 0.02 else 10])
        if chance.random() < 0.05:
            log.next_offset += chance.choice([1, 3, 40])
        if chance.random() < 0.04:
            log.roll()
        epoch = epochs.setdefault(producer, 0)
        if chance.random() < 0.06:
            epoch = epochs[producer] = epoch + 1
            sequences[producer] = 0 if chance.random() < 0.8 else 5
        if chance.random() < 0.06 and epoch:
            epoch -= 1
        if chance.random() < 0.25:
            coordinator = max(coordinator + chance.choice([0, 0, 0, 1]) - (chance.random() < 0.03), 0)
            append_marker(log, producer, epoch, coordinator, chance.random() < 0.7, now)
            continue
        records = chance.choice([1, 2, 7])
        found = sequences.get(producer, 2**31 - 6 if producer == 3 else 0)
        if chance.random() < 0.08:
            found = (found + chance.choice([-3, 1, 4, 30])) % 2**31
        log.data(
            records,
            producer_id=producer,
            epoch=epoch,
            base_sequence=found,
            transactional=producer != 0,
            timestamp_ms=now,
        )
        sequences[producer] = (found + records) % 2**31


def append_marker(log, producer, epoch, coordinator, commit, now):
    log.append(build_marker(producer, epoch, coordinator, commit, now))
