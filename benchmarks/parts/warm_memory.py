"""Free memory that the machine need not fetch from its host, for a process that is about to take much. shell

A virtual machine may return unused memory to its host within seconds. The first process that touches it again waits
for the host, and the wait counts as CPU of the kernel: on one machine a write of 1 GB into the page cache then took
2.5 s instead of 0.2. How much of this a broker meets is chance, and does not depend on the broker.
"""

import tempfile

PIECE = bytes(1 << 20)


def bring(size_bytes: int) -> None:
    """Free this much memory that was in use just now, by writing a temporary file. It stays warm for a second or two.

    A file is needed: memory that a process frees comes in smaller pieces than the page cache takes.
    """
    with tempfile.TemporaryFile(prefix="ottla-memory-") as file:
        for _ in range(-(-size_bytes // len(PIECE))):
            file.write(PIECE)
