"""What a power loss leaves of a file's content. free"""

from enum import Enum
from random import Random
from typing import Final

from ottla.testkit.in_memory.tree import Inode

PAGE_BYTES: Final = 4096


class PowerLoss(Enum):
    """How kind the file system is. JOURNAL: names are lost from the last one on, a file is a prefix, with zeros
    where its length came and its pages did not. ANY_ORDER: every name by itself, every page by itself."""

    JOURNAL = "journal"
    ANY_ORDER = "any order"


def left_in_order(inode: Inode, random: Random) -> bytes:
    """A prefix behind what was synced, or zeros there."""
    data, durable = bytes(inode.data), inode.durable
    if data == durable:
        return data
    if not data.startswith(durable):  # cut or overwritten since
        return random.choice((data, durable))
    end = random.randrange(len(durable), len(data) + 1)
    if random.random() < 0.3:  # the length arrived, the pages did not
        return data[:end] + bytes(len(data) - end) if random.random() < 0.5 else durable + bytes(end - len(durable))
    return data[:end]


def left_by_pages(inode: Inode, random: Random) -> bytes:
    """Each page as it was synced, as it was behind one of the appends since, or as it is; a hole where it never came.

    The length is that of any of these moments, or 0 if the file was emptied to be written anew.
    """
    data, durable = bytes(inode.data), inode.durable
    if data == durable and not inode.replaced:
        return data
    lengths = [len(durable), len(data), *inode.steps, *([0] if inode.replaced else [])]
    if len(data) > len(durable):
        lengths.append(random.randrange(len(durable), len(data) + 1))
    # The last one is likely, or holes would lie behind the end most of the time.
    length = len(data) if random.random() < 0.5 else random.choice(lengths)
    left = bytearray(length)
    versions = [durable, data, data, *(data[:end] for end in random.sample(inode.steps, min(2, len(inode.steps))))]
    for start in range(0, length, PAGE_BYTES):
        end = min(start + PAGE_BYTES, length)
        page = random.choice(versions)[start:end]
        left[start : start + len(page)] = page
    return bytes(left)
