"""The file to print, and what was found in it. free"""

from typing import NamedTuple

from ottla.cli.dump.decode import Decoder
from ottla.cli.dump.log import LogDump


class Found(NamedTuple):
    """Numbers of batches and records of a file, its size, its damage, and a batch that is too large for Ottla."""

    batch_count: int
    record_count: int
    size_bytes: int
    damage: str | None
    unread: str | None = None

    @property
    def summary(self) -> str:
        return f"{self.batch_count} batches, {self.record_count} records, {self.size_bytes} bytes"


class PrintJob(NamedTuple):
    """The file to print and the options. It is sent to other processes."""

    path: str
    records: bool
    as_json: bool
    decoder: Decoder | None

    def dump(self) -> LogDump:
        return LogDump(records=self.records, as_json=self.as_json, decoder=self.decoder)
