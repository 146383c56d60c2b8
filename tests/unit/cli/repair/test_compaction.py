"""`ottla repair` after a compaction was killed: it leaves the files as a start leaves them."""

from pathlib import Path
from random import Random

import pytest

from lab.in_memory.disk import MemoryDisk
from ottla.testkit.in_memory.ports import Killed, PortCalls
from tests.unit.broker.log.test_compaction_crash import contents, known, prepare_disk, restart, visible
from tests.unit.cli.repair.test_command import DyingDisk, content, list_changes, run
from tests.unit.cli.repair.test_command import Killed as RepairKilled

TEMPORARY = (".cleaned", ".swap", ".deleted")


@pytest.fixture(autouse=True)
def no_device(monkeypatch):
    """Skip fsync and fdatasync: no test here loses power, and hundreds of syncs are slow."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    monkeypatch.setattr("os.fdatasync", lambda descriptor: None)


def killed_states(power_loss):
    """Return {the names that a kill of the compaction leaves: the disk} for every such set of names."""
    found, kill_at, ended = {}, 1, False
    while not ended:
        disk = prepare_disk(1)
        process = restart(disk)
        disk.ports.kill_at = disk.ports.count + kill_at
        try:
            process.clean()
            ended = True
        except Killed:
            disk.ports.kill_at = -1
            if power_loss:
                disk.lose_power()
            names = tuple(sorted(disk.files_under("/data/t-0")))
            if any(name.endswith(TEMPORARY) for name in names):
                found.setdefault(names, disk)
        kill_at += 1
    return found


def export(disk, directory):
    for path, data in (disk.files_under("/data") | disk.files_under("/data/t-0")).items():
        file = directory / path.removeprefix("/data/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def load_disk(directory):
    """Return a disk in memory with these files."""
    disk = MemoryDisk(PortCalls(), Random(1), lambda work: work())
    disk.torn_writes = False
    disk.make_dirs("/data/t-0")
    for name, data in content(directory).items():
        disk.write(f"/data/{name}", data)
    return disk


def logs(directory):
    return {f"/data/t-0/{file.name}": file.read_bytes() for file in (directory / "t-0").glob("*.log")}


def restart_and_read(disk):
    """Restart on this disk. Return its contents, the visible records and the known producers."""
    process = restart(disk)
    return contents(disk), visible(disk), known(process.partition)


@pytest.mark.slow
@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power-loss"])
def test_a_repair_ends_a_compaction_as_a_start_does(tmp_path, power_loss):
    states = killed_states(power_loss)
    suffixes = set()
    for number, (names, disk) in enumerate(states.items()):
        directory = tmp_path / str(number)
        export(disk, directory)
        suffixes |= {Path(name).suffix for name in names}
        expected = restart_and_read(disk)
        unfinished = any(name.endswith((".cleaned", ".swap")) for name in names)
        before = content(directory)
        code, would = run(directory, "--dry-run")
        assert (code == 1) == bool(list_changes(would)), names
        assert bool(list_changes(would)) >= unfinished, names
        assert content(directory) == before
        code, done = run(directory)
        assert code == 0, (names, done)
        assert list_changes(done) == list_changes(would)
        assert not [file for file in (directory / "t-0").iterdir() if file.suffix in (".cleaned", ".swap")], names
        assert logs(directory) == expected[0], names
        assert run(directory)[1]["result"].endswith("nothing to repair.")
        assert restart_and_read(load_disk(directory)) == expected, names
    assert suffixes >= {".cleaned", ".deleted"}
    assert len(states) > 6


@pytest.mark.slow
def test_a_repair_killed_at_any_step_loses_no_records(tmp_path, monkeypatch):
    monkeypatch.setattr("ottla.broker.ports.disk.RealDisk", DyingDisk)
    swaps = [disk for names, disk in killed_states(False).items() if any(name.endswith(".log.swap") for name in names)]
    assert len(swaps) > 1
    for number, disk in enumerate((swaps[0], swaps[-1])):
        whole = tmp_path / f"{number}"
        export(disk, whole)
        expected = restart_and_read(disk)
        steps = 0
        while True:
            directory = tmp_path / f"{number}-{steps}"
            export(load_disk(whole), directory)
            DyingDisk.left = steps
            try:
                run(directory)
                break
            except RepairKilled:
                pass
            assert restart_and_read(load_disk(directory)) == expected, steps
            DyingDisk.left = 10**6
            assert run(directory)[0] == 0
            assert logs(directory) == expected[0], steps
            steps += 1
        DyingDisk.left = 10**6
        assert steps > 3
