"""Settings of glibc's allocator that return freed memory to the system. shell

glibc maps large blocks one by one and unmaps them when they are freed. But each freed block raises the size that glibc
calls large, up to 32 MiB. After a while glibc puts requests of ten megabytes into its heap, between small blocks that
stay. The heap does not return their memory: more than a hundred megabytes after a hundred large requests.
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
MAPPED_BYTES: Final = 128 * 1024
"""Blocks above this size get a mapping of their own. It is glibc's initial value; setting it makes it fixed."""
TRIMMED_BYTES: Final = 1024 * 1024
"""Bytes that may stay free at the end of the heap. Returning them is a system call, too much for each small block."""


def return_freed_memory() -> bool:
    """Make the allocator of this process return freed memory; False if it is not glibc's: others lack the settings."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(_M_TRIM_THRESHOLD, TRIMMED_BYTES))
