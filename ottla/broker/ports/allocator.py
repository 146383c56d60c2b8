"""How memory that is freed goes back to the system. shell

glibc maps large blocks one by one and unmaps them when they are freed, but raises what it calls large, up to 32 MiB,
with each one that is freed. After a while requests of ten megabytes lie in its heap, between small blocks that stay,
and the heap keeps what they leave: more than a hundred megabytes after a hundred large requests.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
MAPPED_BYTES: Final = 128 * 1024
"""What is larger has a mapping of its own: glibc's first value, which is kept when it is set."""
TRIMMED_BYTES: Final = 1024 * 1024
"""What may be free at the end of the heap. It is given back with a system call, so not for each small block."""


def give_back_what_is_freed() -> bool:
    """Tell the allocator of this process; False where it is not glibc's, and has no such settings."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(_M_TRIM_THRESHOLD, TRIMMED_BYTES))
