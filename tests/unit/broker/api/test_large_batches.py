"""Large batches are checked one at a time, whatever becomes of the one before."""

from types import SimpleNamespace

from ottla.broker.api import produce
from ottla.broker.turns import Gate, Turns


def test_a_check_that_breaks_lets_the_next_one_in(monkeypatch):
    later, bugs, verdicts = [], [], []
    turns = Turns(later.append, bugs.append)
    broker = SimpleNamespace(
        config=SimpleNamespace(max_decompressed_message_bytes=1), turns=turns, large_batches=Gate()
    )

    def breaks():
        yield produce.LARGE_BYTES + 1
        raise MemoryError

    def ends():
        yield produce.LARGE_BYTES + 1
        return "checked"

    checks = iter([breaks(), ends(), ends()])  # the second gives its bytes back and begins anew
    monkeypatch.setattr(produce, "check_produced_batch_sliced", lambda records, max_decompressed_bytes: next(checks))
    for _ in range(2):
        turns.event(lambda: turns.start(produce._check_records(broker, memoryview(b"")), verdicts.append, bugs.append))
    while later:
        turns.event(later.pop(0))
    assert [type(bug) for bug in bugs] == [MemoryError]
    assert verdicts == ["checked"]
    assert not broker.large_batches.taken
