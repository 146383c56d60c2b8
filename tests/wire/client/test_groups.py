"""transaction() with the positions of a consumer, while its group changes: each record is processed once, or again."""

import math
import threading
import time

import pytest
from kafka import KafkaProducer

from ottla.client import TransactionAborted
from ottla.protocol.errors import ErrorCode
from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.client.groups import Member, throw_out, wait_until_nobody_is_in
from tests.wire.client.topics import committed_offsets, make_topic, values

OUTDATED = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
COUNT = 8


@pytest.fixture
def source(broker):
    """Create a topic of two partitions with records 0 to 7."""
    topic = make_topic(broker, 2)
    feeder = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(COUNT):
        feeder.send(topic, b"%d" % number, partition=number % 2)
    feeder.close()
    return topic


@pytest.fixture
def target_topic(broker):
    return make_topic(broker)


@pytest.fixture
def join(kafka, broker, source, target_topic, name):
    return lambda **options: Member(kafka, broker, name, source, target_topic, **options)


@pytest.fixture
def group(name):
    return f"group-of-{name}"


def copy_the_rest(broker, topic, *members):
    """Copy until every record is there; records of a transaction that a rebalance aborts are polled again."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while len(found := values(broker, topic)) < COUNT:
        assert time.monotonic() < deadline, f"only {found}"
        for member in members:
            try:
                member.copy(member.poll())
            except TransactionAborted as error:
                assert error.retriable
    return sorted(found)


def everything():
    return [str(number) for number in range(COUNT)]


def share(first, second):
    """Wait until each has a partition, polling both if necessary; return the records that the second polls."""
    found, failed = [], []

    def poll_second():
        try:
            while second.count_partitions() != 1:
                found.extend(second.poll())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=poll_second)
    thread.start()
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while thread.is_alive() or first.count_partitions() != 1:
        if not first.kafka.rebalances_in_the_background:
            first.poll()
        assert not failed and time.monotonic() < deadline, failed
    thread.join()
    return found


@pytest.mark.slow
def test_a_member_that_was_thrown_out_commits_nothing(broker, join, group, target_topic):
    member = join()
    records = member.poll_records()
    with pytest.raises(TransactionAborted) as caught:
        member.copy(records, "settle", lambda: throw_out(broker, group))
    assert caught.value.retriable
    assert caught.value.code in OUTDATED
    assert values(broker, target_topic) == []
    assert committed_offsets(broker, group) == []
    assert copy_the_rest(broker, target_topic, member) == everything()
    assert committed_offsets(broker, group) == [COUNT / 2, COUNT / 2]


@pytest.mark.slow
def test_a_member_whose_session_ended_commits_nothing(broker, proxy, join, group, target_topic):
    member = join(consumes_from=proxy.bootstrap, session_ms=6000)  # the least that brokers allow
    records = member.poll_records()

    def be_cut_off():
        proxy.hang_up(math.inf)
        wait_until_nobody_is_in(broker, group)
        proxy.hang_up()

    with pytest.raises(TransactionAborted) as caught:
        member.copy(records, "settle", be_cut_off)
    assert caught.value.retriable
    assert caught.value.code in OUTDATED
    assert values(broker, target_topic) == []
    assert committed_offsets(broker, group) == []
    assert copy_the_rest(broker, target_topic, member) == everything()
    assert committed_offsets(broker, group) == [COUNT / 2, COUNT / 2]


@pytest.mark.slow
def test_assigned_partitions_commit_without_a_membership(broker, join, group, target_topic):
    member = join(numbers=[0, 1])
    records = member.poll_records()
    with pytest.raises(ZeroDivisionError):
        member.copy(records, "settle", ZeroDivisionError())
    assert committed_offsets(broker, group) == []
    assert copy_the_rest(broker, target_topic, member) == everything()
    assert committed_offsets(broker, group) == [COUNT / 2, COUNT / 2]


@pytest.mark.slow
def test_a_rebalance_inside_the_block_commits_nothing(broker, join, group, target_topic):
    first, others, found = join(), [], []
    records = first.poll_records()

    def let_another_join():
        others.append(join())
        found.extend(share(first, *others))

    with pytest.raises(TransactionAborted) as caught:
        first.copy(records, "settle", let_another_join)
    assert caught.value.retriable
    assert caught.value.code in OUTDATED
    assert values(broker, target_topic) == []
    assert committed_offsets(broker, group) == []
    others[0].copy(found)
    assert copy_the_rest(broker, target_topic, first, *others) == everything()
    assert committed_offsets(broker, group) == [COUNT / 2, COUNT / 2]


@pytest.mark.slow
def test_records_polled_before_a_rebalance_are_not_written(kafka, broker, join, group, target_topic):
    if not kafka.rebalances_in_the_background:
        pytest.skip("a consumer of this library rebalances only while it is polled")
    first = join()
    first.copy(first.poll_records())
    records = first.poll_records()
    second = join()
    found = share(first, second)
    before = values(broker, target_topic)
    with pytest.raises(TransactionAborted) as caught:
        first.copy(records)
    assert caught.value.retriable
    assert caught.value.code in OUTDATED
    assert values(broker, target_topic) == before
    second.copy(found)
    assert copy_the_rest(broker, target_topic, first, second) == everything()
    assert committed_offsets(broker, group) == [COUNT / 2, COUNT / 2]


@pytest.mark.slow
def test_records_polled_before_an_abort_are_refused_and_polled_again(broker, join, group, target_topic):
    member = join()
    records = member.poll_records()
    with pytest.raises(ZeroDivisionError):
        member.copy(records, ZeroDivisionError())
    with pytest.raises(RuntimeError, match="Poll inside the code that you run again"):
        member.copy(records)
    assert values(broker, target_topic) == []
    assert committed_offsets(broker, group) == []
    assert copy_the_rest(broker, target_topic, member) == everything()


@pytest.mark.slow
def test_an_empty_poll_sends_no_positions(kafka, proxy, broker, source, target_topic, name):
    class Behind:
        bootstrap = proxy.bootstrap

    member = Member(kafka, Behind, name, source, target_topic)
    assert copy_the_rest(broker, target_topic, member) == everything()
    before = proxy.requests["TxnOffsetCommit"]
    assert before > 0
    member.copy(member.poll())
    member.copy(member.poll())
    assert proxy.requests["TxnOffsetCommit"] == before
