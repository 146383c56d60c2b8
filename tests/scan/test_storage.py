"""Log directories at URIs give the same results as local ones, and their errors are messages of one line."""

import errno
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from pyarrow import fs

from ottla.scan import ahead, headers, storage
from ottla.scan.chunks import CHUNK_BYTES, SegmentReader
from ottla.scan.damage_log import DamageLog
from ottla.scan.indexed_fates import has_index
from ottla.scan.listing import UnreadableDirectory, list_partitions
from ottla.scan.ranges import cut_segment
from ottla.spark_jobs.audit import main
from tests.s3_server import s3_server
from tests.spark.views import read_view
from tests.timeout import EVENT_TIMEOUT_S

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024
# No scan for fates before the records are read.
EVERYTHING = {"isolation_level": "read_uncommitted"}


@pytest.fixture
def behind_arrow(monkeypatch):
    """Make a local directory a remote one: `kept://log/...` through Arrow's file systems."""

    def put(directory):
        storage._connect_once.cache_clear()
        tree = fs.SubTreeFileSystem(str(directory), fs.LocalFileSystem())
        monkeypatch.setattr(storage, "connect", lambda root: (tree, ""))
        return "kept://log"

    yield put
    storage._connect_once.cache_clear()


@pytest.fixture(scope="module")
def s3():
    with s3_server() as server:
        yield server


def run_audit(directory, capsys):
    """Return exit code and findings, without the directory's name."""
    code = main([str(directory), "--format", "json"])
    out, err = capsys.readouterr()
    assert err == ""
    # Time goes on between two audits.
    out = re.sub(r"\b\d+ (d|h|min|s|ms)\b( \d+ (d|h|min|s|ms)\b)*", "TIME", remove_name(out, directory))
    return code, [json.loads(line) for line in out.splitlines()]


def remove_name(text, directory):
    base, _, query = str(directory).partition("?")
    return text.replace(base, "DIR").replace("?" + query, "") if query else text.replace(base, "DIR")


def read_rows(directory, view, **options):
    rows = read_view(directory, view, **options)
    return sorted(remove_name(repr(sorted(row.items())), directory) for row in rows)


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_findings_are_those_of_the_local_directory(reference, behind_arrow, capsys, name):
    local = run_audit(reference(name), capsys)
    assert local[0] == 1
    assert run_audit(behind_arrow(reference(name)), capsys) == local


@pytest.mark.parametrize("name", ["clean", "unclean"])
@pytest.mark.parametrize("view", ["records", "transactions", "partitions", "segments", "producers", "group_offsets"])
def test_views_are_those_of_the_local_directory(reference, behind_arrow, name, view):
    local = read_rows(reference(name), view)
    assert local
    assert read_rows(behind_arrow(reference(name)), view) == local


def test_filters_and_times_read_the_indexes_of_the_remote_directory(reference, behind_arrow):
    options = {"startingOffsets": '{"ledger": {"0": 100}}', "endingTimestamp": "1795253827000"}
    local = read_rows(reference("clean"), "records", **options)
    assert 0 < len(local) < 3988
    assert read_rows(behind_arrow(reference("clean")), "records", **options) == local


@pytest.fixture
def fetches(monkeypatch):
    """Record (name, size, position) of every fetch from a remote file."""
    seen = []
    read = storage._RemoteFile.read

    def record(self, size, position):
        content = read(self, size, position)
        seen.append((storage.name_of(self._path), len(content), position))
        return content

    monkeypatch.setattr(storage._RemoteFile, "read", record)
    return seen


def test_a_segment_is_read_in_ranges_of_eight_mebibytes(write_log, behind_arrow, fetches):
    log = write_log()
    for _ in range(20):
        log.data(value=b"x" * MIB)
    assert len(read_view(behind_arrow(write_log.root), "records", ["offset"], **EVERYTHING)) == 20
    size = log.path.stat().st_size
    ranges = sorted((position, length) for name, length, position in fetches if name == log.path.name)
    assert ranges == [
        (0, ahead.READ_BYTES),
        (ahead.READ_BYTES, ahead.READ_BYTES),
        (2 * ahead.READ_BYTES, size - 2 * ahead.READ_BYTES),
    ]


def test_each_of_many_small_segments_is_fetched_once(write_log, behind_arrow, fetches):
    log = write_log()
    for _ in range(30):
        log.data(10)
        log.roll()
    names = [path.name for path in log.folder.iterdir() if path.stat().st_size]
    assert len(read_view(behind_arrow(write_log.root), "records", ["offset"], **EVERYTHING)) == 300
    assert sorted(name for name, _, _ in fetches if name.endswith(".log")) == sorted(names)


def test_no_more_than_three_ranges_of_a_segment_are_held(write_log, behind_arrow, fetches):
    log = write_log()
    for _ in range(60):
        log.data(value=b"x" * MIB)
    place = behind_arrow(write_log.root)
    (partition,) = list_partitions(place)
    (segment,) = partition.segments
    reader = SegmentReader(DamageLog("fail"), check_crc=False)
    done = 0
    for chunk in reader.chunks(cut_segment(segment, segment.size_bytes + 1, 0)[0]):
        done = max(done, chunk.file_position + int(chunk.rows[-1, headers.POSITION] + chunk.rows[-1, headers.SIZE]))
        asked = max(position + length for _, length, position in fetches)
        assert asked <= done + (1 + ahead.WINDOWS_AHEAD) * ahead.READ_BYTES + CHUNK_BYTES
    assert done == segment.size_bytes


def test_expected_pieces_can_be_skipped_while_reading(write_log, behind_arrow):
    log = write_log()
    for _ in range(6):
        log.data(10)
        log.roll()
    (partition,) = list_partitions(behind_arrow(write_log.root))
    pieces = [cut_segment(segment, MIB, 0)[0] for segment in partition.segments[:-1]]
    reader = SegmentReader(DamageLog("fail"), check_crc=True)
    reader.expect(pieces)
    read = [int(chunk.rows[0, headers.BASE_OFFSET]) for piece in pieces[1::2] for chunk in reader.chunks(piece)]
    assert read == [10, 30, 50]


def test_an_error_of_reading_ahead_is_raised_for_its_own_piece(write_log, behind_arrow):
    log = write_log()
    for _ in range(3):
        log.data(10)
        log.roll()
    (partition,) = list_partitions(behind_arrow(write_log.root))
    pieces = [cut_segment(segment, MIB, 0)[0] for segment in partition.segments[:-1]]
    (write_log.root / "ledger-0" / storage.name_of(pieces[1].path)).unlink()
    reader = SegmentReader(DamageLog("fail"), check_crc=True)
    reader.expect(pieces)
    assert len(list(reader.chunks(pieces[0]))) == 1
    with pytest.raises(FileNotFoundError):
        list(reader.chunks(pieces[1]))
    assert len(list(reader.chunks(pieces[2]))) == 1


def test_a_batch_larger_than_a_range_is_read(write_log, behind_arrow):
    log = write_log()
    log.data(value=b"x" * (ahead.READ_BYTES + 5))
    log.data()
    assert [row["offset"] for row in read_view(behind_arrow(write_log.root), "records", ["offset"])] == [0, 1]


@pytest.fixture
def listings(monkeypatch):
    """Record the listed paths, and whether each listing included subdirectories."""
    seen = []
    listed = storage._list
    monkeypatch.setattr(storage, "_list", lambda path, **how: seen.append((path, *how.values())) or listed(path, **how))
    return seen


def test_many_small_partitions_are_listed_with_few_requests(reference, behind_arrow, listings):
    assert len(list_partitions(behind_arrow(reference("clean")))) == 23
    assert [path for path, recursive in listings if recursive] == ["kept://log"]
    assert len(listings) <= 5


def test_large_partitions_are_listed_side_by_side(reference, behind_arrow, listings, monkeypatch):
    local = [(log.name, log.log_start, log.snapshots) for log in list_partitions(str(reference("clean")))]
    place = behind_arrow(reference("clean"))
    monkeypatch.setattr(storage, "NAMES_PER_REQUEST", 1)
    found = [(log.name, log.log_start, log.snapshots) for log in list_partitions(place)]
    assert found == [
        (name, start, tuple(place + path[len(str(reference("clean"))) :] for path in paths))
        for name, start, paths in local
    ]
    assert sorted(listings) == sorted([(place, False), *((f"{place}/{name}", False) for name, _, _ in local)])


def test_index_files_missing_from_the_listing_are_not_requested(write_log, behind_arrow, monkeypatch):
    log = write_log()
    log.data(10)
    log.roll().data(10)
    (write_log.root / "ledger-0" / f"{0:020d}.index").write_bytes(b"")
    (partition,) = list_partitions(behind_arrow(write_log.root))
    assert [segment.suffixes for segment in partition.segments] == [(".index",), ()]
    monkeypatch.setattr(storage, "connect", None)
    storage._connect_once.cache_clear()
    assert [has_index(segment) for segment in partition.segments] == [True, False]


def test_upcoming_files_are_read_in_their_order_and_may_be_left_out(tmp_path, behind_arrow):
    for name in "abcdefgh":
        (tmp_path / name).write_text(name)
    place = behind_arrow(tmp_path)
    files = storage.Upcoming([f"{place}/{name}" for name in "abxcdefgh"], at_once=3)
    assert [files.read(f"{place}/{name}") for name in "abxc"] == [b"a", b"b", None, b"c"]
    assert files.read(f"{place}/h") == b"h"  # out of turn, so by itself
    assert [files.read(f"{place}/{name}") for name in "eh"] == [b"e", b"h"]
    assert files.read(f"{place}/a") == b"a"


def test_an_index_check_fetches_no_file_twice(write_log, behind_arrow, fetches, capsys):
    log = write_log()
    for _ in range(10):
        path = log.path
        log.data(10)
        log.roll()
        for suffix in (".index", ".timeindex", ".txnindex"):
            path.with_suffix(suffix).write_bytes(b"\x01")
    assert main([behind_arrow(write_log.root), "--checks", "index", "--format", "json"]) == 1
    capsys.readouterr()
    names = sorted(name for name, _, _ in fetches if name.endswith("index"))
    assert names == sorted(path.name for path in log.folder.glob("*index"))
    assert len(names) == 30


def test_paths_of_uris_keep_their_query():
    path = storage.join(storage.join("s3://b/logs/?scheme=http", "a.b-0"), "00000000000000000042.log")
    assert path == "s3://b/logs/a.b-0/00000000000000000042.log?scheme=http"
    assert storage.with_suffix(path, ".index") == "s3://b/logs/a.b-0/00000000000000000042.index?scheme=http"
    assert storage.parent(path) == "s3://b/logs/a.b-0?scheme=http"
    assert (storage.name_of(path), storage.stem_of(path)) == ("00000000000000000042.log", "00000000000000000042")


def test_local_paths_may_hold_what_uris_do_not():
    path = storage.join("/data/what?/log", "a-0")
    assert path == "/data/what?/log/a-0"
    assert (storage.parent(path), storage.hide_secrets(path)) == ("/data/what?/log", path)


def test_secrets_in_uris_are_refused_and_not_repeated():
    with pytest.raises(UnreadableDirectory) as told:
        list_partitions("s3://key:hidden@logs/kafka")
    assert str(told.value) == "s3://logs/kafka: the URI has a secret, which findings show: leave it out"


def test_an_unknown_uri_scheme_is_reported_in_one_line(capsys):
    assert main(["carrier://logs/kafka"]) == 2
    told = "Unrecognized filesystem type in URI: carrier://logs"
    assert capsys.readouterr().err == f"ottla audit: carrier://logs/kafka/cleaner-offset-checkpoint: {told}\n"


@pytest.mark.parametrize(
    ("said", "number", "told"),
    [
        (OSError("AWS Error ACCESS_DENIED during HeadObject operation: No body"), errno.EACCES, "access denied"),
        (OSError("AWS Error UNKNOWN (HTTP status 403) during HeadObject"), errno.EACCES, "access denied"),
        (OSError("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation: gone"), errno.ENOENT, "no such bucket"),
        (FileNotFoundError("Path does not exist 'logs/x'"), errno.ENOENT, "No such file or directory"),
        (ValueError("first\nsecond"), errno.EIO, "first"),
    ],
)
def test_errors_of_arrow_become_one_line(said, number, told):
    def ask():
        raise said

    with pytest.raises(OSError, match=told) as error:
        storage.translate_errors("s3://logs/x?scheme=http", ask)
    assert (error.value.errno, error.value.strerror, error.value.filename) == (number, told, "s3://logs/x")


def test_findings_from_s3_are_those_of_the_local_directory(reference, s3, capsys):
    upload, _ = s3
    assert run_audit(upload(reference("clean"), "clean"), capsys) == run_audit(reference("clean"), capsys)


def test_ottla_audit_reads_s3(reference, s3):
    upload, query = s3
    uri = upload(reference("clean"), "shell")
    run = [sys.executable, "-m", "ottla", "audit", "--format", "json", "--checks", "hanging"]
    done = subprocess.run([*run, uri], capture_output=True, text=True, cwd=ROOT, check=False, timeout=EVENT_TIMEOUT_S)
    assert (done.returncode, done.stderr) == (1, "")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["transactional_id"] for one in found if one["severity"] != "info"} == {"hanging-01", "tv2-01"}
    done = subprocess.run(
        [*run, f"s3://no-such/kafka{query}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=EVENT_TIMEOUT_S,
    )
    assert (done.returncode, done.stderr) == (2, "ottla audit: s3://no-such/kafka: no such bucket\n")


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_hadoops_names_of_s3_are_read_as_arrows(monkeypatch, scheme):
    asked = []
    monkeypatch.setattr(storage, "connect", lambda root: asked.append(root) or ("filesystem", ""))
    storage._connect_once.cache_clear()
    assert storage.locate(f"{scheme}://lake/kafka?region=x") == ("filesystem", "/kafka")
    assert asked == ["s3://lake?region=x"]
    storage._connect_once.cache_clear()
