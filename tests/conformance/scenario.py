"""The scenario: what transactions, idempotence, isolation and groups must look like from outside, written once.

Each step takes a `StepContext`: a client library (clients.py), a broker's address, and names of its own. The same
steps run against Ottla and Apache Kafka, so that they assert Kafka's behaviour and not our reading of it.
A step that needs something a client library lacks names it with `@needs`, and is skipped visibly for that client.
"""

import random
from contextlib import ExitStack

from clients import Client, DriverError, eventually, eventually_equal

from ottla.testkit.proxying import ProxyServer

STEPS = []
# What the steps show: the columns of docs/compatibility.md.
FEATURES = (
    TOPICS := "topics",
    RECORDS := "records",
    IDEMPOTENCE := "idempotence",
    TRANSACTIONS := "transactions",
    GROUPS := "groups",
    CONSUMER_GROUPS := "consumer groups (KIP-848)",
    COPY := "exactly-once copy",
    RECREATED := "recreated topics",
    TLS := "TLS",
    SCRAM := "SCRAM over TLS",
    ACLS := "ACLs",
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class StepContext:
    """The client of a step, and topic, group and transactional ids that no other step uses.

    `start_another` starts another process of the client. `administrator` is a client of kafka-python with all rights.
    """

    def __init__(self, client: Client, step: str, start_another=None, administrator=None):
        self.client, self.prefix = client, f"{client.name}.{step}"
        self.start_another, self.administrator = start_another, administrator

    def name(self, name):
        return f"{self.prefix}.{name}"

    def topics(self, *names, partitions=1, **configs):
        full = [self.name(name) for name in names]
        self.client.create_topics(full, partitions, **configs)
        return full if len(full) > 1 else full[0]

    def producer(self, transactional_id=None, **options):
        return self.client.producer(transactional_id and self.name(transactional_id), **options)


def step(feature, *needs, steps=STEPS):
    """Registers a step of a feature. A driver may list `feature`, or one of `needs`, as missing."""

    def register(function):
        function.feature, function.needs = feature, needs
        steps.append(function)
        return function

    return register


def catch_refusal(call, *args, **options):
    """The DriverError that the call raises."""
    try:
        call(*args, **options)
    except DriverError as error:
        return error
    raise AssertionError(f"{call.__name__} was accepted")


@step(TOPICS)
def create_and_delete_topics(context):
    kept, dropped = context.topics("kept", "dropped", partitions=3)
    with context.producer() as producer:
        producer.send(dropped, "before deletion", partition=2)
    context.client.delete_topics([dropped])
    eventually(lambda: dropped not in context.client.topics(), "the deleted topic is gone")
    assert kept in context.client.topics()
    assert context.client.values([kept]) == []


@step(TOPICS)
def a_topic_created_again_starts_empty(context):
    topic = context.topics("again")
    with context.producer() as producer:
        producer.send(topic, "first life", "first life too")
    context.client.delete_topics([topic])
    eventually(lambda: topic not in context.client.topics(), "the deleted topic is gone")
    context.client.create_topics([topic])
    with context.producer() as producer:
        assert producer.send(topic, "second life") == [0]
    assert context.client.values([topic]) == ["second life"]


@step(TRANSACTIONS)
def a_commit_shows_both_topics_or_neither(context):
    ledger, audit = context.topics("financial-ledger", "audit-log", partitions=2)
    with context.producer("order-processor-01") as producer:
        producer.begin()
        offsets = producer.send(ledger, "debit 100", "credit 100", key="Account-123", partition=1)
        offsets += producer.send(audit, "transfer 100", key="Account-123", partition=0)
        assert offsets == [0, 1, 0]
        assert context.client.values([ledger, audit]) == []
        producer.commit()
        expected = ["credit 100", "debit 100", "transfer 100"]
        eventually_equal(lambda: context.client.values([ledger, audit]), expected)
        records = context.client.read([ledger])
        assert [(r.partition, r.offset, r.key) for r in records] == [(1, 0, b"Account-123"), (1, 1, b"Account-123")]


@step(TRANSACTIONS)
def an_abort_shows_nothing(context):
    ledger, audit = context.topics("financial-ledger", "audit-log")
    with context.producer("order-processor-01") as producer:
        producer.begin()
        producer.send(ledger, "never")
        producer.send(audit, "never")
        producer.abort()
        producer.begin()
        # Each partition holds the aborted record and its marker first.
        eventually_equal(lambda: context.client.values([ledger, audit], "read_uncommitted"), ["never", "never"])
        assert producer.send(ledger, "after the abort") == [2]
        producer.commit()
    eventually_equal(lambda: context.client.values([ledger, audit]), ["after the abort"])


@step(TRANSACTIONS)
def open_aborted_and_committed_records_in_both_views(context):
    views = context.topics("view-open", "view-aborted", "view-committed")
    producers = [context.producer(f"viewer-{index}") for index in range(3)]
    for producer, topic in zip(producers, views, strict=True):
        producer.begin()
        producer.send(topic, "one record")
    producers[1].abort()
    producers[2].commit()

    def chart(isolation):
        return [len(context.client.read([topic], isolation)) for topic in views]

    eventually_equal(lambda: (chart("read_uncommitted"), chart("read_committed")), ([1, 1, 1], [0, 0, 1]))
    producers[0].abort()
    for producer in producers:
        producer.close()


@step(TRANSACTIONS)
def an_open_transaction_holds_readers_back(context):
    topic = context.topics("ledger")
    with context.producer("slow") as slow, context.producer("quick") as quick, context.producer() as plain:
        plain.send(topic, "1 plain")
        slow.begin()
        slow.send(topic, "2 slow")
        quick.begin()
        quick.send(topic, "3 quick")
        quick.commit()
        quick.begin()
        quick.send(topic, "4 quick, aborted")
        quick.abort()
        plain.send(topic, "5 plain")
        everything = ["1 plain", "2 slow", "3 quick", "4 quick, aborted", "5 plain"]
        assert context.client.values([topic], "read_uncommitted") == everything
        assert context.client.values([topic]) == ["1 plain"]
        slow.commit()
        eventually_equal(lambda: context.client.values([topic]), ["1 plain", "2 slow", "3 quick", "5 plain"])


@step(TRANSACTIONS)
def a_second_instance_fences_the_first(context):
    topic = context.topics("financial-ledger")
    with ExitStack() as opened:
        with context.producer("order-processor-01") as zombie:
            zombie.begin()
            zombie.send(topic, "by the first instance")
            successor = opened.enter_context(context.producer("order-processor-01"))
            successor.begin()
            successor.send(topic, "by the second instance")
            successor.commit()
            error = catch_refusal(lambda: (zombie.send(topic, "by the zombie"), zombie.commit()))
            assert error.is_fenced, error
        # A closed zombie asks for nothing more: kafka-python's InitProducerId would abort what the successor begins.
        successor.begin()
        successor.send(topic, "by the second instance again")
        successor.commit()
        committed = ["by the second instance", "by the second instance again"]
        eventually_equal(lambda: context.client.values([topic]), committed)
        uncommitted = context.client.values([topic], "read_uncommitted")
        assert uncommitted == ["by the first instance", *committed]


@step(TRANSACTIONS, "quiet-zombie")
def a_zombie_does_not_disturb_the_open_transaction_of_its_successor(context):
    topic = context.topics("financial-ledger")
    with context.producer("order-processor-01") as zombie:
        zombie.begin()
        zombie.send(topic, "by the first instance")
        with context.producer("order-processor-01") as successor:
            successor.begin()
            successor.send(topic, "by the second instance")
            error = catch_refusal(lambda: (zombie.send(topic, "by the zombie"), zombie.commit()))
            assert error.is_fenced, error
            successor.commit()
    eventually_equal(lambda: context.client.values([topic]), ["by the second instance"])


@step(TRANSACTIONS)
def a_fenced_producer_cannot_commit(context):
    topic = context.topics("financial-ledger")
    with context.producer("order-processor-01") as zombie:
        zombie.begin()
        zombie.send(topic, "by the first instance")
        with context.producer("order-processor-01"):
            error = catch_refusal(zombie.commit)
            assert error.is_fenced, error
    assert context.client.values([topic]) == []


@step(TRANSACTIONS)
def positions_become_visible_with_the_commit(context):
    orders, receipts = context.topics("orders", "receipts")
    group = context.name("billing")
    with context.producer() as feeder, context.producer("biller") as biller:
        feeder.send(orders, *(f"order {n}" for n in range(10)))
        orders_read = context.client.read([orders])
        assert len(orders_read) == 10

        def attempt(upto, outcome):
            biller.begin()
            biller.send(receipts, *(f"receipt of {r.value.decode()}" for r in orders_read[:upto]))
            biller.send_offsets(group, orders, {0: upto})
            outcome()

        attempt(4, biller.abort)
        assert context.client.fetch_offsets(group, orders) == [None]
        attempt(6, lambda: None)
        assert context.client.fetch_offsets(group, orders) == [None]
        biller.commit()
        eventually_equal(lambda: context.client.fetch_offsets(group, orders), [6])
        attempt(9, biller.abort)
        assert context.client.fetch_offsets(group, orders, isolation="read_committed") == [6]
        attempt(10, biller.commit)
        eventually_equal(lambda: context.client.fetch_offsets(group, orders), [10])
    expected = [f"receipt of order {n}" for n in (*range(6), *range(10))]
    eventually_equal(lambda: context.client.values([receipts]), sorted(expected))


@step(TRANSACTIONS, "group-metadata")
def positions_of_a_live_member_commit_in_its_transaction(context):
    orders, receipts = context.topics("orders", "receipts")
    group = context.name("billing")
    with context.producer() as feeder, context.producer("biller") as biller:
        member = context.client.member(group, [orders])
        eventually(lambda: member.assignment() == {(orders, 0)}, "the member is assigned")
        feeder.send(receipts, "not an order")
        biller.begin()
        biller.send(receipts, "receipt")
        biller.send_offsets(group, orders, {0: 0}, member)
        biller.commit()
        eventually_equal(lambda: context.client.fetch_offsets(group, orders), [0])
        member.close()


@step(TRANSACTIONS)
def a_transaction_outlives_its_timeout(context):
    topic = context.topics("ledger")
    with context.producer("expires-01", transaction_timeout_ms=2000) as late, context.producer() as plain:
        late.begin()
        late.send(topic, "too slow")
        plain.send(topic, "behind it")
        assert context.client.values([topic]) == []
        eventually_equal(lambda: context.client.values([topic]), ["behind it"])
        catch_refusal(late.commit)
        assert context.client.values([topic]) == ["behind it"]
    with context.producer("expires-01") as again:
        again.begin()
        again.send(topic, "in time")
        again.commit()
    eventually_equal(lambda: context.client.values([topic]), ["behind it", "in time"])


def _lose_one_acknowledgement(context, idempotent):
    """The values in the topic after the acknowledgement of `paid once` got lost and the client sent it again."""
    topic = context.topics("payments")
    with ProxyServer(context.client.bootstrap) as proxy:
        with context.producer(idempotent=idempotent, bootstrap=proxy.bootstrap) as producer:
            producer.send(topic, "before")
            fault = proxy.add(at="reply", api="Produce", do="drop")
            producer.send(topic, "paid once")
            producer.send(topic, "after")
        assert fault.hits
    return context.client.values([topic], "read_uncommitted")


@step(IDEMPOTENCE)
def a_lost_acknowledgement_leaves_one_copy(context):
    assert _lose_one_acknowledgement(context, idempotent=True) == ["after", "before", "paid once"]


@step(RECORDS)
def without_idempotence_it_leaves_two(context):
    assert _lose_one_acknowledgement(context, idempotent=False) == ["after", "before", "paid once", "paid once"]


@step(TRANSACTIONS)
def a_lost_acknowledgement_inside_a_transaction_leaves_one_copy(context):
    topic = context.topics("payments")
    with (
        ProxyServer(context.client.bootstrap) as proxy,
        context.producer("payer", bootstrap=proxy.bootstrap) as producer,
    ):
        producer.begin()
        fault = proxy.add(at="reply", api="Produce", do="drop")
        producer.send(topic, "paid once")
        producer.commit()
        assert fault.hits
    eventually_equal(lambda: context.client.values([topic], "read_uncommitted"), ["paid once"])
    eventually_equal(lambda: context.client.values([topic]), ["paid once"])


def _send_in_transactions(context, topic, codec, values):
    """Send the values in three transactions, or in none if the library has none. Return the committed ones."""
    if "transactions" in context.client.missing:
        with context.producer(compression=codec) as producer:
            producer.send(topic, *values)
        return values
    with context.producer("packer", compression=codec) as producer:
        for end, part in (("commit", values[:60]), ("abort", values[60:80]), ("commit", values[80:])):
            producer.begin()
            producer.send(topic, *part)
            getattr(producer, end)()
    return values[:60] + values[80:]


def _codec_step(codec):
    def round_trip(context):
        topic = context.topics("ledger")
        dice = random.Random(codec)
        values = [f"{n} {dice.randbytes(dice.randrange(40)).hex()} {'x' * dice.randrange(900)}" for n in range(120)]
        committed = _send_in_transactions(context, topic, codec, values)
        eventually_equal(lambda: [r.value.decode() for r in context.client.read([topic])], committed)
        assert [r.value.decode() for r in context.client.read([topic], "read_uncommitted")] == values

    round_trip.__name__ = f"codec_{codec}_round_trip"
    return step(RECORDS, f"codec-{codec}")(round_trip)


for _codec in CODECS:
    _codec_step(_codec)


@step(RECORDS)
def every_level_of_acks_delivers(context):
    topic = context.topics("orders")
    for acks in ("0", "1", "all"):
        with context.producer(acks=acks, idempotent=False) as producer:
            producer.send(topic, *(f"acks {acks} record {n}" for n in range(5)))
    expected = sorted(f"acks {acks} record {n}" for acks in ("0", "1", "all") for n in range(5))
    eventually_equal(lambda: context.client.values([topic]), expected)


def _round_trip_of_rows(context, rows):
    topic = context.topics("odd")
    with context.producer() as producer:
        offsets = producer.send_records([(topic, 0, *row) for row in rows])
        assert offsets == list(range(len(rows)))

    def encode(data):
        return data.encode() if isinstance(data, str) else data

    found = [(r.key, r.value, r.headers) for r in context.client.read([topic])]
    assert found == [(encode(key), encode(value), headers) for key, value, headers in rows]


@step(RECORDS, "empty-bytes", "empty-record")
def keys_and_values_may_be_null_or_empty(context):
    every_byte = bytes(range(256))
    rows = [(None, "value only", []), ("key only", None, []), ("", "", []), (every_byte, every_byte[::-1], [])]
    _round_trip_of_rows(context, rows)


@step(RECORDS, "null-record")
def a_record_may_have_neither_key_nor_value(context):
    _round_trip_of_rows(context, [(None, None, [])])


@step(RECORDS, "empty-bytes")
def headers_repeat_and_may_be_empty(context):
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("\u00fc", "\u00fc".encode()), ("", b"nameless")]
    _round_trip_of_rows(context, [("key", "value", headers), ("key", "no headers", [])])


@step(RECORDS, "null-header")
def a_header_may_be_null(context):
    _round_trip_of_rows(context, [("key", "value", [("null", None), ("not null", b"1")])])


@step(TRANSACTIONS)
def segments_roll_under_transactions(context):
    topic = context.topics("long", **{"segment.bytes": str(1 << 20)})
    dice, kept, everything = random.Random(3), [], []
    with context.producer("order-processor-02") as producer:
        for number in range(30):
            values = [f"{number}-{n} {dice.randbytes(1200).hex()}" for n in range(50)]
            producer.begin()
            producer.send(topic, *values)
            everything += values
            if number % 3 == 2:
                producer.abort()
            else:
                producer.commit()
                kept += values
    eventually_equal(lambda: [r.value.decode()[:10] for r in context.client.read([topic])], [v[:10] for v in kept])
    assert [r.value.decode() for r in context.client.read([topic])] == kept
    assert [r.value.decode() for r in context.client.read([topic], "read_uncommitted")] == everything


def share_partitions(context, protocol):
    partitions = 6
    topic = context.topics("orders", partitions=partitions)
    group = context.name("workers")
    every = {(topic, p) for p in range(partitions)}
    sent = []

    def is_covered(*members):
        """All partitions are assigned, each to one member, and no member goes without."""
        shares = [member.assignment() for member in members]
        return all(shares) and sum(map(len, shares)) == partitions and set().union(*shares) == every

    def feed(producer, batch):
        values = [f"{batch}-{p}-{n}" for p in range(partitions) for n in range(3)]
        producer.send_records([(topic, p, None, f"{batch}-{p}-{n}", []) for p in range(partitions) for n in range(3)])
        sent.extend(values)

    def values_of(*members):
        return {r.value.decode() for member in members for r in member.records()}

    with context.producer() as producer:
        first = context.client.member(group, [topic], protocol=protocol)
        eventually(lambda: is_covered(first), "the first member has all partitions")
        feed(producer, "one")
        eventually(lambda: values_of(first) == set(sent), "the first member received everything")
        second, third = (context.client.member(group, [topic], protocol=protocol) for _ in range(2))
        eventually(lambda: is_covered(first, second, third), "three members share the partitions")
        feed(producer, "three")
        eventually(lambda: values_of(first, second, third) == set(sent), "the three received everything")
        left = values_of(first)
        first.close()
        eventually(lambda: is_covered(second, third), "two members share the partitions")
        feed(producer, "two")
        eventually(lambda: left | values_of(second, third) == set(sent), "the two received everything")
        third_heard = values_of(third)
        third.close()
        eventually(lambda: is_covered(second), "the last member has all partitions")
        feed(producer, "last")
        eventually(lambda: left | third_heard | values_of(second) == set(sent), "the last member received the rest")
        second.close()
    ends = [sum(r.partition == p for r in context.client.read([topic])) for p in range(partitions)]
    eventually_equal(lambda: context.client.fetch_offsets(group, topic, range(partitions)), ends)


@step(GROUPS)
def a_group_of_three_comes_and_goes(context):
    share_partitions(context, "classic")
