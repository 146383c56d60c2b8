"""Serve like `ottla serve`, but sync each append by itself before anything else happens, as Kafka does. shell

`flush.py` compares this broker with Ottla's group commit.
"""

import os
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ottla.broker.log.flusher import Flusher
from ottla.broker.log.partition import Partition
from ottla.cli.main import main


@cache
def descriptor_of(path: str) -> int:
    return os.open(path, os.O_RDONLY)


def flush(_: Flusher, partition: Partition) -> None:
    for path in partition.log.files_to_flush():
        os.fdatasync(descriptor_of(path))
    partition.complete_flush(partition.log_end_offset)


if __name__ == "__main__":
    Flusher.flush = flush  # type: ignore[method-assign, assignment]
    sys.exit(main())
