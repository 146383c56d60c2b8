"""Words for counts, spans of numbers and producers in findings and reports. pure"""

# Words for the kind of a decision, by `history.KIND`, and for the fate of a marker.
KINDS = ("ABORT", "COMMIT")


def name_producer(transactional_id: str | None, producer_id: int, epoch: int) -> str:
    """Return `order-1 (producer 13, epoch 2)`, or `producer 13, epoch 2` if the id is not known."""
    known = f"producer {producer_id}, epoch {epoch}"
    return known if transactional_id is None else f"{transactional_id} ({known})"


def count(many: int, word: str, plural: str | None = None) -> str:
    """Return `1 batch` or `1,200 batches`."""
    return f"{many:,} {word if many == 1 else plural or word + 's'}"


def span(word: str, first: int, last: int) -> str:
    """Return `offset 5` or `offsets 5 to 1,200`."""
    return f"{word} {first:,}" if first == last else f"{word}s {first:,} to {last:,}"
