"""The check `replicas`: differences that brokers may have are no finding, and each fault is found at its offset."""

import json
import shutil

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.checks.finding import CHECKS
from ottla.audit.replica_tasks import compare_replicas
from ottla.audit.request import list_all
from ottla.audit.runner import ThreadRunner
from ottla.audit.tasks import Settings
from tests.audit.copies_by_seed import FAULTS, write_pairs

SEED = 20_260
SETTINGS = Settings(CHECKS, 10_000, None, 86_400_000, None)


def compare(*directories):
    """Return the findings on the partitions of these directories, by topic."""
    listed = [one for directory in directories for one in list_all(str(directory))]
    compared = compare_replicas(ThreadRunner(2), listed, {}, SETTINGS)
    found = {}
    for one in compared.findings:
        found.setdefault(one.topic, []).append(one)
    return found


def test_a_thousand_sound_pairs_have_no_finding(tmp_path):
    directories, _ = write_pairs(tmp_path, SEED, 1_000)
    assert compare(*directories) == {}


def test_each_planted_fault_is_found_at_its_offset(tmp_path):
    directories, made = write_pairs(tmp_path, SEED, 300, FAULTS)
    found = compare(*directories)
    for one in made:
        (finding,) = found.pop(one.name, ())
        assert (finding.offset, finding.message.split()[0]) == (one.offset, str(one.records)), (one, finding)
        is_lost = "were acknowledged and lost in" in finding.message
        assert is_lost == one.fault.startswith("unclean"), (one, finding)
        assert ("are damaged in" in finding.message) == (one.fault == "crc"), (one, finding)
    assert found == {}
