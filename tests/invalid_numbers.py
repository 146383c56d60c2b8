"""A log directory in which a number or a name is one that no Kafka writes, and what each command answers. free"""

import os
import shutil
import struct
from typing import NamedTuple

from crc32c import crc32c

from ottla.protocol.batch_header import LOG_OVERHEAD, iter_batches
from ottla.protocol.records import iter_records
from ottla.protocol.snapshot import HEAD_BYTES
from ottla.testkit.corpus.case import write_case
from ottla.testkit.corpus.catalogue import CASES

CASE = "transactions-across-segments"
PARTITION = f"{CASE}-0"
STATE = "__transaction_state-0/00000000000000000000.log"
END_OFFSET = 9
COMMANDS = {
    "audit": ["audit", "DIR"],
    "inspect": ["inspect", "DIR", "--verify"],
    "dump": ["dump", "DIR", "--records"],
    "repair": ["repair", "DIR"],
    "export": ["export", "DIR", "OUT"],
    "alert": ["alert", "DIR", "--once"],
}


class Odd(NamedTuple):
    """A change of a sound directory. `codes`: exit codes that are not 0; one that is 2 names `file` in one line.

    `serve` is what the broker does: it "serves" the partition, or has it "offline", or "refuses" the directory.
    """

    change: object
    file: str
    codes: dict
    serve: str = "serves"


def write_directory(target):
    """Write the sound directory."""
    (case,) = (each for each in CASES if each.name == CASE)
    write_case(case, target)
    return target / CASE / "data"


def checkpoint(name, *lines):
    text = "".join(f"{line}\n" for line in lines)
    return lambda data: (data / name).write_text(f"0\n{len(lines)}\n{text}")


def content(name, written):
    def change(data):
        (data / name).parent.mkdir(exist_ok=True)
        (data / name).write_bytes(written if isinstance(written, bytes) else written.encode())

    return change


def copy_as(old, new):
    """Copy a file or a folder to a name, which may be bytes that are no UTF-8."""

    def change(data):
        target = os.fsdecode(os.fsencode(data) + b"/" + (new if isinstance(new, bytes) else new.encode()))
        (shutil.copytree if (data / old).is_dir() else shutil.copy)(data / old, target)

    return change


def rename_as(old, new):
    return lambda data: (data / old).rename(data / new)


def in_batches(names, layout, at, number):
    """Write a number into each header that has a producer, with the CRC that fits."""

    def change(data):
        for path in data.glob(names):
            log = bytearray(path.read_bytes())
            position = 0
            while position < len(log):
                end = position + LOG_OVERHEAD + struct.unpack_from(">i", log, position + 8)[0]
                if struct.unpack_from(">q", log, position + 43)[0] >= 0:
                    struct.pack_into(layout, log, position + at, number)
                struct.pack_into(">I", log, position + 17, crc32c(bytes(log[position + 21 : end])))
                position = end
            path.write_bytes(log)

    return change


def in_snapshots(layout, at, number):
    """Write a number into the first entry of each producer snapshot, with the CRC that fits."""

    def change(data):
        for path in data.glob(f"{PARTITION}/*.snapshot"):
            snapshot = bytearray(path.read_bytes())
            struct.pack_into(layout, snapshot, HEAD_BYTES + at, number)
            struct.pack_into(">I", snapshot, 2, crc32c(bytes(snapshot[6:])))
            path.write_bytes(snapshot)

    return change


def in_states(number):
    """Write a producer id into the states of `__transaction_state`, whose values begin with a version and the id."""

    def change(data):
        log = bytearray((data / STATE).read_bytes())
        content = bytes(log)
        for position, header in iter_batches(content):
            for record in iter_records(content, header, position):
                if record.value:
                    struct.pack_into(">q", log, log.find(bytes(record.value)) + 2, number)
        (data / STATE).write_bytes(log)
        in_batches(STATE, ">b", 16, 2)(data)  # the CRC

    return change


def properties(**values):
    return content("meta.properties", "".join(f"{key.replace('_', '.')}={text}\n" for key, text in values.items()))


def drop_mark(change):
    """Make the change in a directory that was not stopped cleanly."""

    def both(data):
        change(data)
        (data / ".kafka_cleanshutdown").unlink()

    return both


NEEDED = {"audit": 2, "export": 2, "alert": 2, "repair": 2, "inspect": 1, "dump": 1}
LOG_NAME = {"audit": 2, "export": 2, "alert": 2, "repair": 1, "inspect": 1, "dump": 1}
OTHER_PRODUCER = {"audit": 1}
SOUND = {"version": 1, "cluster_id": "c", "node_id": 1}
QUORUM = '{"leaderId":1,"leaderEpoch":%s,"votedId":-1,"data_version":0}'

ODD = {}
for _name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
    for _number in (2**63, 2**63 - 1, -(2**63) - 1, "9" * 5000, "1_0", "x", "\u0663"):
        ODD[f"{_name} {_number:.20}" if isinstance(_number, str) else f"{_name} {_number}"] = Odd(
            checkpoint(_name, f"{CASE} 0 {_number}"), _name, NEEDED, "refuses"
        )
    ODD[f"{_name} partition"] = Odd(checkpoint(_name, f"{CASE} {2**31} 4"), _name, NEEDED, "refuses")
    ODD[f"{_name} bytes"] = Odd(content(_name, b"0\n1\n\xff 0 4\n"), _name, NEEDED, "refuses")
    ODD[f"{_name} count"] = Odd(content(_name, f"0\n{2**63}\nx 0 4\n"), _name, NEEDED, "refuses")
    ODD[f"{_name} negative"] = Odd(checkpoint(_name, f"{CASE} 0 -5"), _name, {})
for _name in ("replication-offset-checkpoint", "cleaner-offset-checkpoint"):
    ODD[f"{_name} 2^63"] = Odd(checkpoint(_name, f"{CASE} 0 {2**63}"), _name, {"dump": 1})
    ODD[f"{_name} negative"] = Odd(checkpoint(_name, f"{CASE} 0 -5"), _name, {})
    ODD[f"{_name} bytes"] = Odd(content(_name, b"0\n1\n\xff 0 4\n"), _name, {"dump": 1})
for _entry in (f"{2**31} 0", "-3 0", f"0 {2**63}", "0 -7"):
    _name = f"{PARTITION}/leader-epoch-checkpoint"
    ODD[f"leader epoch {_entry}"] = Odd(checkpoint(_name, _entry), _name, {"dump": 1})
    ODD[f"leader epoch {_entry}, not stopped"] = Odd(drop_mark(checkpoint(_name, _entry)), _name, {"dump": 1})
for _number in (2**46, 2**63 - 1, -2, -(2**63)):
    _in_log = in_batches(f"{PARTITION}/*.log", ">q", 43, _number)
    ODD[f"producer id {_number} in batches"] = Odd(_in_log, "", OTHER_PRODUCER)
    ODD[f"producer id {_number} in batches, not stopped"] = Odd(drop_mark(_in_log), "", OTHER_PRODUCER)
    ODD[f"producer id {_number} in states"] = Odd(in_states(_number), "", OTHER_PRODUCER)
    ODD[f"producer id {_number} in snapshots"] = Odd(in_snapshots(">q", 0, _number), "", OTHER_PRODUCER)
for _number in (str(2**64), "9" * 20, str(2**63).zfill(20), str(2**63 - 2**31).zfill(20)):
    _old = f"{PARTITION}/00000000000000000004"
    ODD[f"segment {_number}"] = Odd(
        rename_as(f"{_old}.log", f"{PARTITION}/{_number}.log"), _number, LOG_NAME, "offline"
    )
    for _suffix in ("index", "timeindex", "txnindex", "snapshot"):
        ODD[f"{_suffix} {_number}"] = Odd(copy_as(f"{_old}.{_suffix}", f"{PARTITION}/{_number}.{_suffix}"), "", {})
for _number in ("2147483648", "9" * 10, "1" * 40, "00", "\u0661"):
    ODD[f"partition {_number}"] = Odd(copy_as(PARTITION, f"{CASE}-{_number}"), "", {})
ODD["folder of bytes"] = Odd(copy_as(PARTITION, b"t\xff\xfe-0"), "", {})
ODD["segment of bytes"] = Odd(
    copy_as(f"{PARTITION}/00000000000000000004.log", PARTITION.encode() + b"/\xff.log"), "", {}
)
ODD["segment of other digits"] = Odd(
    copy_as(f"{PARTITION}/00000000000000000004.log", f"{PARTITION}/0000000000000000000\u0669.log"), "", {}
)
for _number in (2**31, 2**63, "9" * 5000, -1, "\u0663"):
    ODD[f"node {_number!s:.20}"] = Odd(properties(**SOUND | {"node_id": _number}), "meta.properties", {}, "refuses")
ODD["directory id"] = Odd(properties(**SOUND, directory_id="\xff\xff"), "meta.properties", {}, "refuses")
ODD["cluster id"] = Odd(properties(**SOUND | {"cluster_id": "x" * 100_000}), "meta.properties", {}, "refuses")
for _number in (2**31 - 1, 2**63, -4, "1e999", "null", "[" * 100_000):
    _name = "__cluster_metadata-0/quorum-state"
    ODD[f"elected epoch {_number!s:.20}"] = Odd(content(_name, QUORUM % _number), "quorum-state", {}, "refuses")
