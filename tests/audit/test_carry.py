"""An audit in two runs, of which the second begins where the first ended, finds what one run finds."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")


from ottla.audit.carry import Carry, decode, encode
from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.scan import events
from ottla.scan.listing import COORDINATORS
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.case_run import BEGIN_MS
from ottla.testkit.corpus.catalogue import CASES
from ottla.wire.address import parse_kafka_address
from tests.corpus import KEEPING, write_files
from tests.thread_broker import ThreadBroker

SOON_MS = 600_000
HERE = {case.name: case for case in CASES}
SERVED = [case for case in CASES if case.name != "torn-transaction"]


def run_audit(directories, carry=None, **given):
    return audit(ThreadRunner(1), Request(directories, (), BEGIN_MS + SOON_MS, carry=carry, **given))


# Over the wire, these are of the answer that has the marker.
OF_FILES = [events.ENDED_SEGMENT, events.ENDED_POSITION]


def facts_of(found):
    has_files = not found.directories[0].startswith("kafka://")
    return {
        "findings": sorted(
            (one.check, one.severity, one.place, one.producer_id or 0, one.message, one.action)
            + ((one.file or "", one.position or 0) if has_files else ())
            for one in found.findings
        ),
        "open": sorted((one.topic, one.first_offset, one.verdict.value) for one in found.open_transactions),
        "ended": found.ended,
        "partitions": {
            one.name: one._replace(
                log=None,
                directory="",
                recent=(one.recent if has_files else np.delete(one.recent, OF_FILES, axis=1)).tolist(),
                torn_tails=len(one.torn_tails),
            )
            for one in found.partitions
        },
    }


def offsets_at(whole, share):
    """Return the offset at this share of each partition, without those of the coordinators."""
    return {
        (one.log.topic, one.log.partition): one.log_start + round((one.log_end - one.log_start) * share)
        for one in whole.partitions
        if one.log.topic != COORDINATORS
    }


def stored(carry):
    """Return a carry after it was written to a file and read."""
    return decode("carry", encode(carry))


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_runs_over_a_directory_find_what_one_finds(case, share, tmp_path):
    root = write_files(files_of(case), tmp_path) / "data"
    whole = run_audit((str(root),))
    first = run_audit((str(root),), Carry("carry"), until_offsets=offsets_at(whole, share))
    second = run_audit((str(root),), stored(first.carry))
    assert facts_of(second) == facts_of(whole)
    third = run_audit((str(root),), stored(second.carry))
    assert facts_of(third) == facts_of(whole)


@pytest.mark.parametrize("case", SERVED, ids=lambda case: case.name)
def test_two_runs_over_the_wire_find_what_one_finds(case, tmp_path):
    root = write_files(files_of(case), tmp_path) / "data"
    with ThreadBroker(root, now_ms=BEGIN_MS + SOON_MS, **KEEPING) as broker:
        address = parse_kafka_address(f"kafka://{broker.bootstrap}")
        where = (str(address),)
        whole = run_audit(where, address=address)
        first = run_audit(where, Carry("carry"), address=address, until_offsets=offsets_at(whole, 0.5))
        second = run_audit(where, stored(first.carry), address=address)
    assert facts_of(second) == facts_of(whole)


# The decision on a marker is read after the marker. These cases compare clocks, or partitions without decisions, which
# an audit does among the records that it reads at once.
AT_ONCE = {"none"}


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in AT_ONCE], ids=lambda case: case.name)
def test_decisions_that_come_later_are_matched_with_earlier_markers(case, tmp_path):
    root = write_files(files_of(case), tmp_path) / "data"
    whole = run_audit((str(root),))
    until = {
        (one.log.topic, one.log.partition): one.log_start + (one.log_end - one.log_start) // 2
        for one in whole.partitions
    }
    first = run_audit((str(root),), Carry("carry"), until_offsets=until)
    second = run_audit((str(root),), stored(first.carry))
    assert facts_of(second) == facts_of(whole)
