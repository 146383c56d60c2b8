"""`ottla dump --records`: many records and many parts at once give the same output as one by one."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.cli.dump.job import PrintJob
from ottla.cli.dump.plain import plain_text
from ottla.cli.dump.printing import SPREAD_FROM_BYTES, print_log
from ottla.printable import printable
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import assign_offsets, read_header, set_append_time
from ottla.protocol.compression import ZSTD
from ottla.protocol.errors import ProtocolError
from ottla.protocol.records import NewRecord, iter_records

ODD = "a'\"\\\n\r\x00\x1b\x7f\x85\xa0\xadé\u200b\u2028\ufffd\ue000\U0001f600\U000e0001\U0010ffff"
contents = st.none() | st.binary(max_size=300) | st.text(ODD, max_size=40).map(str.encode)
records = st.builds(
    NewRecord,
    contents,
    contents,
    st.lists(st.tuples(st.text(ODD, max_size=5), contents), max_size=3),
    st.sampled_from([None, 0, 10**12]),
)
sequences = st.sampled_from([-1, 0, 2**31 - 3])
COMMAND = (sys.executable, "-m", "ottla.cli.main", "dump")


def lines_one_by_one(header, batch):
    kind = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    lines = []
    for record in iter_records(batch, header):
        key_size, value_size = (-1 if part is None else len(part) for part in (record.key, record.value))
        names = printable(",".join(name for name, _ in record.headers))
        line = f"| offset: {record.offset} {kind}: {record.timestamp} keySize: {key_size} valueSize: {value_size} "
        line += f"sequence: {record.sequence} headerKeys: [{names}]"
        for label, part in (("key", record.key), ("payload", record.value)):
            if part is not None:
                line += f" {label}: {printable(part.decode(errors='replace'))}"
        lines.append(line + "\n")
    return "".join(lines)


def lines_at_once(header, batch):
    pieces = plain_text(header, memoryview(batch))
    return None if pieces is None else b"".join(pieces).decode()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(records, min_size=1, max_size=70), st.integers(0, 4), st.sampled_from([-1, 0, 2**31 - 3]), st.booleans()
)
@example([NewRecord(b"\xe2\x82", b"\xf0\x9f\x98", [("a,b", None)])], 0, -1, False)
@example([NewRecord(b"k" * 20_000, b"v" * 8192)] * 2, 0, 0, True)
def test_records_at_once_read_as_one_by_one(wanted, codec, sequence, append_time):
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
    batch = bytearray(build_batch(wanted, timestamp_ms=5, compression=codec, **producer))
    assign_offsets(batch, 1000, 0)
    if append_time:
        set_append_time(batch, 99)
    header = read_header(batch)
    assert lines_at_once(header, batch) == lines_one_by_one(header, batch)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_unreadable_batches_are_declined_by_the_fast_printer(wanted, data):
    batch = bytearray(build_batch(wanted, timestamp_ms=5))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(57, len(batch) - 1))
        batch[place] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    header = read_header(batch)
    if header.record_count > 1000:  # of which most cannot be there
        header = header._replace(record_count=1000)
    try:
        expected = lines_one_by_one(header, batch) or None
    except ProtocolError:
        expected = None
    assert lines_at_once(header, batch) == expected


@pytest.mark.slow
def test_every_character_is_escaped_as_alone():
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    values = ["\\".join(characters[at : at + 512]) for at in range(0, len(characters), 512)]
    batch = build_batch([(None, value.encode()) for value in values])
    text = lines_at_once(read_header(batch), batch)
    assert [line.partition(" payload: ")[2] for line in text.split("\n")] == [*map(printable, values), ""]


def dump_log(path, **options):
    pieces = []
    found = print_log(PrintJob(str(path), True, False, None), 0, pieces.append, **options)
    return b"".join(pieces), found


def write_log(path, batch_count):
    template = build_batch([(b"%d" % at, bytes(range(256)) * 8) for at in range(64)], timestamp_ms=1)
    content = bytearray()
    for number in range(batch_count):
        batch = bytearray(template)
        assign_offsets(batch, 64 * number, 0)
        content += batch
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Write 5 MiB, so that several processes get a part each."""
    return write_log(tmp_path_factory.mktemp("some") / "00000000000000000000.log", 40)


@pytest.fixture(scope="module")
def large_log(tmp_path_factory):
    """Write a log larger than one process prints alone."""
    path = write_log(tmp_path_factory.mktemp("large") / "00000000000000000000.log", 140)
    assert path.stat().st_size > SPREAD_FROM_BYTES
    return path


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content: content, None),
        (lambda content: b"", None),
        (lambda content: content[:-100], "left in the file at position"),
        (lambda content: content + bytes(30), "batch header cut short: 30 bytes"),
        (lambda content: content[: len(content) // 40 * 20] + bytes(300_000), "batch length 0 at position"),
        (lambda content: content[:2_000_000] + b"\1" + content[2_000_001:], "wrong CRC at position"),
        (lambda content: content[: len(content) // 40 * 20] + content, "where 1280 is expected at position"),
    ],
)
def test_processes_side_by_side_print_what_one_prints(log, tmp_path, damage, says):
    path = tmp_path / log.name
    path.write_bytes(damage(log.read_bytes()))
    text, found = dump_log(path, spread_from_bytes=sys.maxsize)
    assert dump_log(path, spread_from_bytes=0) == (text, found)
    assert found.damage is None if says is None else says in found.damage


@pytest.mark.slow
def test_much_text_of_few_bytes_is_printed_all_the_same(tmp_path):
    batch = bytearray(build_batch([(None, b"x" * 2**20)] * 40, compression=ZSTD))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batch)
    text, found = dump_log(path, spread_from_bytes=sys.maxsize)
    assert dump_log(path, spread_from_bytes=0) == (text, found)
    assert len(text) > 40 * 2**20 > 1000 * len(batch)


def test_a_closed_stdout_ends_the_dump_without_an_error_message(log):
    with subprocess.Popen([*COMMAND, log.parent, "--records"], stdout=-1, stderr=-1) as process:
        assert process.stdout.readline().startswith(b"Dumping")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_an_interrupt_leaves_no_process(large_log):
    command = [*COMMAND, large_log, "--records"]
    with subprocess.Popen(command, stdout=-1, stderr=-1, start_new_session=True) as process:
        while not process.stdout.readline().startswith(b"| offset: "):
            pass
        os.killpg(process.pid, signal.SIGINT)
        process.communicate()
    assert process.returncode == 1
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
