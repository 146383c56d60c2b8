"""Log directories that Apache Kafka 4.3.1 wrote: one after kill -9, and the same one after Kafka recovered it."""

import io
import json
import tarfile
from pathlib import Path

import cramjam
import pytest

from ottla.broker.config import Config
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.results import FetchIsolation
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import Turns
from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.checkpoints import parse_directory_name
from ottla.protocol.indexes import iter_aborted_txns
from ottla.protocol.records import iter_records
from ottla.protocol.snapshot import decode_snapshot
from ottla.testkit.scanner import scan_partition

DATA = Path(__file__).parents[3] / "data" / "kafka-4.3.1"
# As the directories were written (sources of the data: log.segment.bytes, log.index.size.max.bytes).
# Long after the records, so expiration is put off: Kafka stopped while their producers were known.
SETTINGS = LogConfig(segment_bytes=1_048_576, segment_index_bytes=65_536, producer_id_expiration_ms=10**15)


def unpack(name, target):
    with tarfile.open(
        fileobj=io.BytesIO(bytes(cramjam.zstd.decompress((DATA / f"{name}.tar.zst").read_bytes())))
    ) as tar:
        tar.extractall(target, filter="data")
    return target / name


@pytest.fixture(scope="module")
def kafka_s_clean_copy(tmp_path_factory):
    return unpack("clean", tmp_path_factory.mktemp("kafka"))


class FixedClock:
    def now_ms(self):
        return 1_795_000_000_000


def open_manager(directory):
    turns = Turns(lambda callback: callback(), pytest.fail)
    manager = LogManager(RealDisk(), FixedClock(), turns, Config(log_dirs=str(directory)))
    manager.open()
    for name in manager.partition_dirs():
        topic, index = parse_directory_name(name)
        topic_id = manager.topic_id_on_disk(topic, index)
        epoch = int((Path(directory) / name / "leader-epoch-checkpoint").read_text().split()[-2])
        manager.open_partition(topic, index, topic_id, epoch, SETTINGS)
    return manager


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


@pytest.fixture(params=["clean", "unclean"])
def manager(request, tmp_path):
    manager = open_manager(unpack(request.param, tmp_path))
    yield manager
    manager.close()


@pytest.mark.slow
def test_every_partition_is_read_as_the_scanner_reads_it(manager):
    assert len(list(manager)) == 23
    for partition in manager:
        scanned = scan_partition(Path(manager.directory) / partition.name)
        assert partition.offline is None
        assert partition.log_end_offset == scanned.log_end_offset
        assert partition.last_stable_offset == scanned.last_stable_offset
        read, position = [], 0
        while position < partition.high_watermark:
            for at, header in iter_batches(data := partition.read(position, 3000).records):
                position = header.next_offset
                if not header.is_control:
                    read += [(r.offset, r.timestamp, r.key, r.value) for r in iter_records(data, header, at)]
        assert read == [(r.offset, r.timestamp, r.key, r.value) for r in scanned.records()]


def test_committed_reads_agree_with_the_scanner(manager):
    for partition in manager:
        scanned = scan_partition(Path(manager.directory) / partition.name)
        read, position = [], partition.log_start_offset
        while position < partition.last_stable_offset:
            piece = partition.read(position, 5000, isolation=FetchIsolation.TXN_COMMITTED)
            waiting = sorted(piece.aborted, key=lambda entry: entry[1])
            aborted = set()
            for at, header in iter_batches(piece.records):
                position = header.next_offset
                while waiting and waiting[0][1] <= header.last_offset:
                    aborted.add(waiting.pop(0)[0])
                if header.is_control:
                    marker = read_marker(piece.records, header, at)
                    if marker is not None and marker.control_type == 0:
                        aborted.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborted):
                    read += [record.offset for record in iter_records(piece.records, header, at)]
        assert read == [record.offset for record in scanned.records("read_committed")]


def test_recovery_after_a_kill_writes_what_kafka_s_recovery_wrote(tmp_path, kafka_s_clean_copy):
    directory = unpack("unclean", tmp_path)
    open_manager(directory).close()
    compared = {".index": 0, ".timeindex": 0, ".txnindex": 0, ".snapshot": 0}
    for name in names(kafka_s_clean_copy):
        kafka_s, ours = kafka_s_clean_copy / name, directory / name
        log_files = {path.name: path.read_bytes() for path in kafka_s.glob("*.log")}
        if log_files != {path.name: path.read_bytes() for path in ours.glob("*.log")}:
            continue  # Kafka wrote more before it stopped
        for path in kafka_s.iterdir():
            found = ours / path.name
            if path.suffix == ".snapshot":
                if not (found.exists() or int(path.stem) in bases(kafka_s) or newest_snapshot(kafka_s) == path):
                    continue
                assert sorted(decode_snapshot(found.read_bytes())) == sorted(decode_snapshot(path.read_bytes())), found
            elif path.suffix == ".txnindex":
                # Kafka keeps an empty one where it recovered.
                content = found.read_bytes() if found.exists() else b""
                assert content == path.read_bytes(), found
                list(iter_aborted_txns(content))
            elif path.suffix in compared:
                assert found.read_bytes() == path.read_bytes(), found
            if path.suffix in compared:
                compared[path.suffix] += 1
    assert compared[".index"] == compared[".timeindex"] > 20
    assert compared[".txnindex"] >= 8
    assert compared[".snapshot"] >= 15


def bases(directory):
    return {int(path.stem) for path in directory.glob("*.log")}


def newest_snapshot(directory):
    return max(directory.glob("*.snapshot"), default=None)


def test_a_clean_directory_is_not_written_to_but_for_the_checkpoints(tmp_path, kafka_s_clean_copy):
    directory = unpack("clean", tmp_path)
    manager = open_manager(directory)
    assert manager.clean_start
    assert manager.properties.cluster_id == "AAAAAAAAQACAAAAAAAAAAQ"
    manager.close()
    for path in kafka_s_clean_copy.rglob("*"):
        if path.is_file() and path.parent != kafka_s_clean_copy and path.suffix != ".snapshot":
            assert (directory / path.relative_to(kafka_s_clean_copy)).read_bytes() == path.read_bytes(), path
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert offsets(directory / name) >= offsets(kafka_s_clean_copy / name)
    assert json.loads((directory / ".kafka_cleanshutdown").read_text())["version"] == 0


def offsets(path):
    return set(path.read_text().splitlines()[2:])
