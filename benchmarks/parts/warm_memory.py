"""Memory that the machine has at hand, for a process that is about to take much. shell

A virtual machine may give memory that nobody uses back to its host within seconds. Who is the first to touch it again
waits for the host, and that counts as CPU of the kernel: on one machine a write of 1 GB into the page cache then took
2.5 s instead of 0.2. How much of it a broker meets is chance, and nothing that the broker does.
"""

import tempfile

PIECE = bytes(1 << 20)


def bring(size_bytes: int) -> None:
    """Have so much free memory that has just been in use, for a second or two: that of a file which is gone again.

    It must be a file's: what a process lets go of comes in smaller pieces than the page cache takes.
    """
    with tempfile.TemporaryFile(prefix="ottla-memory-") as file:
        for _ in range(-(-size_bytes // len(PIECE))):
            file.write(PIECE)
