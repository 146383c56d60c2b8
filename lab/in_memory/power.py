"""File contents after a power loss. free"""

from enum import Enum
from random import Random
from typing import Final

from lab.in_memory.tree import Inode

PAGE_BYTES: Final = 4096


class PowerLoss(Enum):
    """Behaviour of the file system at a power loss.

    JOURNAL: the latest changes of names are lost, and a file is a prefix, with zeros where only its length was written.
    ANY_ORDER: each change of a name and each page may be lost independently.
    """

    JOURNAL = "journal"
    ANY_ORDER = "any order"


def left_in_order(inode: Inode, random: Random) -> bytes:
    """Return the synced content, followed by a prefix of the later appends or by zeros."""
    data, durable = bytes(inode.data), inode.durable
    if data == durable:
        return data
    if not data.startswith(durable):  # truncated or overwritten since the sync
        return random.choice((data, durable))
    end = random.randrange(len(durable), len(data) + 1)
    if random.random() < 0.3:  # the length was written, but not the pages
        return data[:end] + bytes(len(data) - end) if random.random() < 0.5 else durable + bytes(end - len(durable))
    return data[:end]


def left_by_pages(inode: Inode, random: Random) -> bytes:
    """Return each page as synced, as after one of the later appends, or as it is now; zeros if never written.

    The length is that of any of these moments, or 0 if the file was emptied to be rewritten.
    """
    data, durable = bytes(inode.data), inode.durable
    if data == durable and not inode.replaced:
        return data
    lengths = [len(durable), len(data), *inode.steps, *([0] if inode.replaced else [])]
    if len(data) > len(durable):
        lengths.append(random.randrange(len(durable), len(data) + 1))
    # Prefer the current length; otherwise holes would be after the end most of the time.
    length = len(data) if random.random() < 0.5 else random.choice(lengths)
    left = bytearray(length)
    versions = [durable, data, data, *(data[:end] for end in random.sample(inode.steps, min(2, len(inode.steps))))]
    for start in range(0, length, PAGE_BYTES):
        end = min(start + PAGE_BYTES, length)
        page = random.choice(versions)[start:end]
        left[start : start + len(page)] = page
    return bytes(left)
