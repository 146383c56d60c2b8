"""Names in a directory that are partitions and segments; other names are ignored."""

import shutil

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan.listing import UnreadableDirectory, list_partitions
from tests.spark.views import read_view


@pytest.mark.parametrize(
    "name", ["ledger-0-20261122120000", "ledger-2147483648", "ledger-00", "ledger-0.bak", "ledger-٣"]
)
def test_folder_that_no_broker_would_name_so_is_no_partition(write_log, name):
    log = write_log()
    log.data(2)
    shutil.copytree(log.folder, write_log.root / name)
    assert [one.name for one in list_partitions(str(write_log.root))] == ["ledger-0"]
    assert len(read_view(write_log.root, "records", ["partition"])) == 2


@pytest.mark.parametrize("base_offset", [10**20 - 1, 2**63, 2**63 - 2**31])
def test_segment_whose_offsets_would_not_fit_is_refused(write_log, base_offset):
    log = write_log()
    log.data(2)
    name = f"{base_offset:020d}.log"
    shutil.copy(log.path, log.folder / name)
    with pytest.raises(UnreadableDirectory, match=f"{name}: no log begins at the offset of this name"):
        list_partitions(str(write_log.root))
