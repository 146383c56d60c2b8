"""An explanation why the last stable offset of a partition does not advance. pure

`ottla txn why` collects the facts over the wire from any Kafka broker; the admin port collects them from its own
broker.
"""

from typing import NamedTuple

from ottla.protocol.times import duration
from ottla.verdict import OpenTransaction, Verdict, age_ms, remedies


class Explanation(NamedTuple):
    """A partition at one moment: its open transactions, oldest first, each with the coordinator's state."""

    topic: str
    partition: int
    leader: int
    last_stable_offset: int
    high_watermark: int
    transactions: list[tuple[OpenTransaction, Verdict]]
    now_ms: int

    @property
    def held_back(self) -> int:
        """The number of offsets that readers with read_committed do not get yet."""
        return self.high_watermark - self.last_stable_offset


def remedy_rows(found: Explanation, bootstrap: str, properties: str = "") -> list[tuple[int, str, str | None]]:
    """Return the remedies for the open transactions: (first offset, advice, command).

    Of the later ones only forgotten and decided transactions are listed. The others still have time.
    """
    return [
        (each.start_offset, remedy.advice, remedy.command)
        for number, (each, verdict) in enumerate(found.transactions)
        if number == 0 or verdict.standing.is_abandoned
        for remedy in remedies(each, verdict, bootstrap, found.now_ms, properties)
    ]


def answer(found: Explanation) -> str:
    """Return the explanation as one sentence."""
    where = f"{found.topic}-{found.partition}"
    if not found.held_back:
        opened = len(found.transactions)
        rest = f"; {opened} open transactions have nothing to read yet" if opened else ""
        return f"{where}: nothing is held back, the last stable offset is the end, {found.high_watermark}{rest}."
    offsets = "offset is" if found.held_back == 1 else "offsets are"
    held = f"{where}: {found.held_back} {offsets} held back, from {found.last_stable_offset} on"
    if not found.transactions:
        return (
            f"{held}, and no transaction is open. The end of the log may not be replicated yet, or transactions begin "
            "and end faster than two requests."
        )
    first, verdict = found.transactions[0]
    who = f"producer id {first.producer_id}, epoch {first.epoch}"
    if verdict.known is not None:
        who += f", transactional id {verdict.known.transactional_id!r}"
    age = duration(age_ms(first, verdict, found.now_ms))
    since = f"last active {age} ago" if verdict.standing.is_abandoned else f"open for {age}"
    later = len(found.transactions) - 1
    return f"{held}, by {who} ({verdict.standing}, {since}); {later or 'no'} later open {_plural(later)}."


def _plural(count: int) -> str:
    return "transaction waits" if count == 1 else "transactions wait"
