"""An audit of a `__consumer_offsets` with records of groups of the consumer protocol, and records of unknown types."""

from tests.consumer_group_records import write_consumer_offsets


def test_audit_finds_nothing_wrong_with_records_of_consumer_groups(run_audit, write_log):
    code, out, err = run_audit(write_consumer_offsets(write_log), "--as-of", "1795253827000")
    assert (code, err) == (0, "")
    assert "Clean: " in out
