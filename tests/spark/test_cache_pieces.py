"""Files that a cache keeps, rewrites and deletes as its log changes. The tests call the tasks without Spark."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan.damage_log import DamagedSegment
from ottla.spark_jobs.cache import filling, seen, settled_ranges, unused
from ottla.spark_jobs.cache.upkeep import CacheFailed
from tests.segment_files import LogWriter
from tests.spark.cache_reads import live, through_cache

LEVELS = ("read_committed", "read_uncommitted")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def at_rest(monkeypatch):
    """Treat files as unchanging at once, because the tests change them only after reading them."""
    monkeypatch.setattr(seen, "RESTING_NS", 0)


def check(root, cache, **options):
    """Check the rows of both isolation levels; return the written files and the number of rows from the log."""
    filled = []
    behind = {}
    for level in LEVELS:
        given = {"isolation.level": level, **options}
        rows, behind[level] = through_cache(root, cache, filled, **given)
        assert rows == live(root, **given)
    return filled, behind


def parquet(cache):
    return sorted(path.name for path in cache.rglob("*.parquet") if not path.name.startswith("_"))


def wait_for_clock():
    """Wait until the clock of file timestamps has advanced."""
    time.sleep(0.05)


def test_unchanged_records_are_written_once(write_log, cache):
    log = write_log()
    log.data(3)
    assert len(check(write_log.root, cache)[0]) == 1
    assert check(write_log.root, cache) == ([], dict.fromkeys(LEVELS, 0))


def test_only_new_records_are_written(write_log, cache):
    log = write_log()
    for _ in range(20):
        log.data(3)
    check(write_log.root, cache)
    before = parquet(cache)
    log.data(1)
    log.roll()
    log.data(1)
    filled, _ = check(write_log.root, cache)
    assert [one.settled_range.end_offset - one.settled_range.first_offset for one in filled] == [1, 1]
    assert set(before) < set(parquet(cache))


def test_a_segment_that_grows_has_few_files(write_log, cache):
    log = write_log()
    folder = cache / "records-v1" / "topic=ledger" / "partition=0"
    for count in range(60):
        log.data(1)
        through_cache(write_log.root, cache)
        used = {path.name for path in folder.glob("*.parquet") if not path.name.startswith("_")}
        used -= {path.name.removeprefix(unused.UNUSED) for path in folder.glob(f"{unused.UNUSED}*")}
        assert len(used) <= count.bit_length() + 1


def test_a_log_file_unchanged_for_a_while_is_not_read_again(write_log, cache, at_rest, monkeypatch):
    log = write_log()
    log.data(3)
    wait_for_clock()
    check(write_log.root, cache)
    monkeypatch.setattr(settled_ranges, "_header_rows", None)
    check(write_log.root, cache)
    with pytest.raises(TypeError):
        through_cache(write_log.root, cache, verify="true")


def test_a_file_that_was_just_written_is_read_again(write_log, cache, monkeypatch):
    log = write_log()
    log.data(3)
    check(write_log.root, cache)
    monkeypatch.setattr(settled_ranges, "_header_rows", None)
    with pytest.raises(TypeError):
        through_cache(write_log.root, cache)


@pytest.mark.usefixtures("at_rest")
class TestWhatBecomesOfALog:
    """Changes of a log after its files were recorded."""

    def test_other_records_of_the_same_size(self, write_log, cache):
        log = write_log()
        log.data(3, value=b"one")
        times = log.path.stat()
        check(write_log.root, cache)
        wait_for_clock()
        log.path.write_bytes(b"")
        log.next_offset = 0
        log.data(3, value=b"two")
        os.utime(log.path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert log.path.stat().st_size == times.st_size
        assert len(check(write_log.root, cache)[0]) == 1

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_transaction_that_ended_otherwise(self, write_log, cache, commit):
        log = write_log()
        log.data(2, producer_id=7)
        log.roll()
        log.marker(7, commit)
        check(write_log.root, cache)
        wait_for_clock()
        log.path.write_bytes(b"")
        log.next_offset = 2
        log.marker(7, not commit)
        filled, _ = check(write_log.root, cache)
        assert [one.settled_range.base_offset for one in filled] == [0, 2]

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_transaction_that_is_open_and_ends(self, write_log, cache, commit):
        log = write_log()
        log.data(3)
        log.data(2, producer_id=7)
        log.data(4)
        _, behind = check(write_log.root, cache)
        assert behind == {"read_committed": 0, "read_uncommitted": 6}
        wait_for_clock()
        log.marker(7, commit)
        _, behind = check(write_log.root, cache)
        assert behind == dict.fromkeys(LEVELS, 0)

    def test_a_recreated_topic_is_cached_again(self, write_log, cache):
        write_log().data(3, value=b"one")
        check(write_log.root, cache)
        shutil.rmtree(write_log.root / "ledger-0")
        write_log().data(3, value=b"two")
        assert len(check(write_log.root, cache)[0]) == 1

    def test_files_of_a_deleted_topic_are_marked_as_unused(self, write_log, cache):
        write_log("audit").data(1)
        write_log().data(1)
        check(write_log.root, cache)
        shutil.rmtree(write_log.root / "audit-0")
        check(write_log.root, cache)
        marks = [path.parent.parent.name for path in cache.rglob(f"{unused.UNUSED}*")]
        assert marks == ["topic=audit"]

    @pytest.mark.parametrize("start", [1, 4, 5, 9])
    def test_records_that_are_deleted(self, write_log, cache, start):
        log = write_log()
        log.data(4)
        log.data(5)
        check(write_log.root, cache)
        (write_log.root / "log-start-offset-checkpoint").write_text(f"0\n1\nledger 0 {start}\n")
        assert check(write_log.root, cache) == ([], dict.fromkeys(LEVELS, 0))

    def test_segments_that_retention_took(self, write_log, cache):
        log = write_log()
        log.data(4)
        first = log.path
        log.roll()
        log.data(5)
        check(write_log.root, cache)
        first.unlink()
        assert check(write_log.root, cache) == ([], dict.fromkeys(LEVELS, 0))

    def test_a_segment_that_was_compacted(self, write_log, cache):
        log = write_log()
        log.data(2)
        second = log.data(2)
        third = log.data(2)
        path = log.path
        log.roll()
        log.data(1)
        check(write_log.root, cache)
        content = path.read_bytes()
        swap = path.with_suffix(".swap")
        swap.write_bytes(content[:second] + content[third:])
        swap.replace(path)
        filled, _ = check(write_log.root, cache)
        assert [one.settled_range.base_offset for one in filled] == [0]

    @pytest.mark.parametrize("end", ["the file", "the log"])
    def test_a_bit_that_flips(self, write_log, cache, end):
        log = write_log()
        log.data(2)
        position = log.data(2)
        log.data(2)
        path = log.path
        if end == "the file":
            log.roll()
            log.data(2)
        check(write_log.root, cache)
        wait_for_clock()
        content = bytearray(path.read_bytes())
        content[position + 70] ^= 1
        path.write_bytes(content)
        with pytest.raises(DamagedSegment):
            live(write_log.root)
        with pytest.raises(DamagedSegment):
            through_cache(write_log.root, cache)
        _, behind = check(write_log.root, cache, **{"on.damage": "report"})
        assert behind["read_committed"] > 0

    def test_a_tail_that_is_torn(self, write_log, cache):
        log = write_log()
        log.data(2)
        log.data(2)
        check(write_log.root, cache)
        with log.path.open("r+b") as file:
            file.truncate(log.path.stat().st_size - 3)
        check(write_log.root, cache)
        check(write_log.root, cache)


def test_batches_that_do_not_parse_are_left_to_the_data_source(write_log, cache):
    from ottla.protocol.batch_header import seal

    log = write_log()
    log.data(2)
    position = log.data(2)
    content = bytearray(log.path.read_bytes())
    batch = content[position:]
    batch[61] = 120
    seal(batch)
    log.path.write_bytes(content[:position] + batch)
    with pytest.raises(DamagedSegment):
        live(write_log.root)
    with pytest.raises(DamagedSegment):
        through_cache(write_log.root, cache)
    assert not parquet(cache)
    check(write_log.root, cache, **{"on.damage": "report"})


def test_a_log_that_changes_while_it_is_written_is_not_kept(write_log, cache, monkeypatch):
    log = write_log()
    log.data(3, value=b"one")
    write = filling._write_committed

    def meanwhile(one, path):
        written = write(one, path)
        log.path.write_bytes(b"")
        log.next_offset = 0
        log.data(3, value=b"two")
        return written

    with monkeypatch.context() as patched:
        patched.setattr(filling, "_write_committed", meanwhile)
        rows, behind = through_cache(write_log.root, cache)
    assert [row["value"] for row in rows] == [b"two"] * 3
    assert behind == 3
    assert not parquet(cache)
    assert not [path for path in cache.rglob("_*") if path.name != "_seen.json"]
    check(write_log.root, cache)


def test_missing_or_partial_files_of_a_killed_query_are_replaced(write_log, cache):
    log = write_log()
    log.data(2, producer_id=7)
    log.marker(7, commit=False)
    log.data(3)
    check(write_log.root, cache)
    committed, aborted = sorted(cache.rglob("*.parquet"), key=lambda path: "aborted" in path.name)
    begun = committed.with_name("_begun")
    begun.write_bytes(b"PAR1")
    content = committed.read_bytes()
    for spoil in (committed.unlink, aborted.unlink, lambda: committed.write_bytes(content[:-1])):
        spoil()
        assert len(check(write_log.root, cache)[0]) == 1
        assert committed.read_bytes() == content
    old = time.time() - unused.KEPT_S - 1
    os.utime(begun, (old, old))
    check(write_log.root, cache)
    assert not begun.exists()


def test_queries_that_write_the_same_at_once(write_log, cache):
    log = write_log()
    for producer in range(4):
        log.data(20, producer_id=producer)
        log.marker(producer, commit=producer % 2 == 0)
        log.roll()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: through_cache(write_log.root, cache)[0], range(8)))
    expected = live(write_log.root)
    assert all(rows == expected for rows in found)
    assert check(write_log.root, cache) == ([], dict.fromkeys(LEVELS, 0))


def test_files_go_a_day_after_they_were_first_not_needed(write_log, cache):
    log = write_log()
    log.data(3, value=b"one")
    check(write_log.root, cache)
    kept = log.path.read_bytes()
    (first,) = cache.rglob("*.parquet")
    log.path.write_bytes(b"")
    log.next_offset = 0
    log.data(3, value=b"two")
    check(write_log.root, cache)
    mark = first.with_name(f"{unused.UNUSED}{first.name}")
    assert mark.exists()
    assert first.exists()
    other = log.path.read_bytes()
    log.path.write_bytes(kept)
    assert not check(write_log.root, cache)[0]
    assert not mark.exists()
    log.path.write_bytes(other)
    check(write_log.root, cache)
    old = time.time() - unused.KEPT_S - 1
    os.utime(mark, (old, old))
    check(write_log.root, cache)
    assert not mark.exists()
    assert not first.exists()


def test_a_query_of_some_offsets_marks_no_other_files_as_unused(write_log, cache):
    log = write_log()
    log.data(3)
    log.roll()
    log.data(3)
    check(write_log.root, cache)
    check(write_log.root, cache, endingOffsets='{"ledger": {"0": 2}}')
    check(write_log.root, cache, startingOffsets='{"ledger": {"0": 4}}')
    assert not list(cache.rglob(f"{unused.UNUSED}*"))


def test_offsets_inside_of_batches(write_log, cache):
    log = write_log()
    for _ in range(4):
        log.data(5)
    for first in (0, 3, 5, 19):
        for end in (1, 5, 8, 20):
            given = {
                "startingOffsets": f'{{"ledger": {{"0": {first}}}}}',
                "endingOffsets": f'{{"ledger": {{"0": {end}}}}}',
            }
            check(write_log.root, cache, **given)


def test_a_corrupt_seen_json_causes_no_rewriting(write_log, cache):
    write_log().data(3)
    check(write_log.root, cache)
    (noted,) = [path.parent / "_seen.json" for path in cache.rglob("*.parquet")]
    for content in (b"", b"[]", b'{"0": 1}', b'{"0": [[1], [[2]]]}', b"\xff"):
        noted.write_bytes(content)
        assert check(write_log.root, cache) == ([], dict.fromkeys(LEVELS, 0))


def test_an_unwritable_cache_folder_is_an_error(write_log, tmp_path):
    write_log().data(3)
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheFailed, match="cannot be written or read"):
        through_cache(write_log.root, tmp_path / "file")


def test_two_logs_in_one_cache_read_their_own(tmp_path, cache):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text("version=1\n")
        LogWriter(tmp_path / name).data(3, value=name.encode())
    for _ in range(2):
        for name in ("a", "b"):
            check(tmp_path / name, cache)
