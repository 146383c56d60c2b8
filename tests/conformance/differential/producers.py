"""The producers of a script: who they are, and what they sent."""

from ottla.protocol.batch_header import decrement_sequence, increment_sequence

SENT_KEPT = 10


class Handle:
    """A producer id and epoch with its next sequence of each partition, and the batches it sent there."""

    def __init__(self, producer_id, epoch, id):
        self.producer_id, self.epoch, self.id = producer_id, epoch, id
        self._next = {}
        self._sent = {}

    def sequence(self, step):
        """(first sequence, number of records) of the batch that a `produce` step means."""
        place = str(step["partition"])
        if step["again"]:
            sent = self._sent.get(place, [])
            if len(sent) >= step["again"]:
                return sent[-step["again"]]
        if step["seq"] is not None:
            return step["seq"], step["n"]
        following, shift = self._next.get(place, 0), step["shift"]
        moved = increment_sequence(following, shift) if shift >= 0 else decrement_sequence(following, -shift)
        return moved, step["n"]

    def sent(self, step, first, n):
        """The broker took the batch."""
        place = str(step["partition"])
        sent = self._sent.setdefault(place, [])
        if (first, n) not in sent:
            sent.append((first, n))
            self._next[place] = increment_sequence(first, n)
        del sent[:-SENT_KEPT]

    def go_on(self, producer_id, epoch):
        """A transaction of the second generation has ended: another epoch, and sequences from 0."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self._next, self._sent = {}, {}

    def move(self, producer_id, epoch, id):
        """A handle that went on from this one with another epoch, as a zombie or a forger does."""
        other = Handle(producer_id, epoch, id)
        other._next = dict(self._next)
        other._sent = {place: list(sent) for place, sent in self._sent.items()}
        return other


class Handles:
    """Handles by name. An unknown name has producer id and epoch -1."""

    def __init__(self):
        self._by_name = {}

    def __getitem__(self, name):
        return self._by_name.get(name) or Handle(-1, -1, "t")

    def give(self, name, producer_id, epoch, id):
        self._by_name[name] = Handle(producer_id, epoch, id)

    def alias(self, name, of, epoch, producer_id, id):
        source = self[of]
        moved_epoch = min(max(source.epoch + epoch, 0), 32767)
        self._by_name[name] = source.move(
            source.producer_id + producer_id, moved_epoch, source.id if id is None else id
        )
