"""Commands on a `__consumer_offsets` with records of groups of the consumer protocol, and records of unknown types."""

import json
import re

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.protocol.batch import build_batch
from ottla.protocol.internal_topics.consumer_group_records import ConsumerGroupRecordType
from ottla.protocol.internal_topics.offsets_records import GroupMember, GroupValue, encode_group_value, group_key
from tests.consumer_group_records import (
    COMMIT_MS,
    PARTITION,
    POSITIONS,
    UNKNOWN_TYPES,
    read_records,
    unknown_records,
    write_consumer_offsets,
)

SEGMENT = "00000000000000000000.log"


@pytest.fixture
def directory(write_log):
    return write_consumer_offsets(write_log)


def run(*arguments):
    result = CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)
    assert result.stderr == ""
    return result.exit_code, result.stdout


def run_json(*arguments):
    code, out = run(*arguments, "--format", "json")
    return code, json.loads(out)


def test_inspect_counts_the_positions_of_the_groups_and_finds_no_problem(directory):
    code, found = run_json("inspect", directory)
    assert code == 0
    assert found["groups"] == [
        {"group": name, "offsets": count, "in_open_transactions": 0}
        for name, count in (("auditors", 2), ("billing", 0), ("mixed", 1), ("watchers", 0))
    ]
    (partition,) = found["partitions"]
    assert (partition["partition"], partition["state"]) == (PARTITION, "recovers")
    assert "problems" not in found


def test_inspect_names_a_record_that_cannot_follow_the_state_of_its_group(write_log):
    member = GroupMember("one", None, "c", "/127.0.0.1", 1, 1, b"", b"")
    value = encode_group_value(GroupValue("consumer", 1, "range", "one", COMMIT_MS, (member,)))
    records = [(group_key("auditors"), value), *read_records()]
    write_log("__consumer_offsets").append(build_batch(records, timestamp_ms=COMMIT_MS, base_sequence=0))
    code, found = run_json("inspect", write_log.root)
    assert code == 1
    (problem,) = found["problems"]
    reason = "record of a consumer group auditors, which is a classic group with members"
    assert problem["what"] == f"{PARTITION} cannot be read to its end: {reason}"


def test_dump_prints_every_record_and_those_of_unknown_types_as_unknown(directory):
    code, out = run("dump", directory / PARTITION / SEGMENT, "--records")
    assert code == 0
    keys = [json.loads(each) for each in re.findall(r" key: (\{.*?\})(?: payload:|$)", out, re.MULTILINE)]
    known = {str(int(kind)) for kind in ConsumerGroupRecordType}
    assert known <= {key["type"] for key in keys if key["data"] != "unknown"}
    assert {key["type"] for key in keys if key["data"] == "unknown"} == {str(kind) for kind in UNKNOWN_TYPES}
    for group, topic, partition in POSITIONS:
        assert {"type": "1", "data": {"group": group, "topic": topic, "partition": partition}} in keys
    # Keys of records whose value has an unknown version are not decoded.
    assert [
        out.count(f"({kind} of version 99)") for kind in ("offset value", "group value", "consumer group record")
    ] == [
        1,
        1,
        1,
    ]
    assert len(keys) == len([*read_records()]) + len(unknown_records()) - 3 + len(POSITIONS) + 2
    assert out.splitlines()[-1].startswith("sound: 6 batches")


def test_repair_counts_the_positions_that_a_cut_gives_up(directory):
    log = directory / PARTITION / SEGMENT
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    _, found = run_json("repair", directory, "--dry-run")
    (cost,) = found["a cut gives up"]
    assert (cost["partition"], cost["position"], cost["batches"]) == (PARTITION, 0, 5)
    assert cost["group_offsets"] == len(POSITIONS) + 1  # with the deleted one
