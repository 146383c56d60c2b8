"""The steps of the scenario that take many seconds."""

import time
from contextlib import suppress

from clients import DriverError, eventually, eventually_equal
from scenario import CONSUMER_GROUPS, COPY, RECREATED, TRANSACTIONS, share_partitions, step

LONG_STEPS = []
FED, KILLS_OF_COPIER = 300, 3
OLD, NEW, SETTLED_S = 5, 8, 6


@step(CONSUMER_GROUPS, "consumer-protocol", steps=LONG_STEPS)
def a_consumer_group_of_three_comes_and_goes(context):
    share_partitions(context, "consumer")


@step(COPY, "copier", steps=LONG_STEPS)
def a_copy_through_kills_has_each_record_once(context):
    source, sink = context.topics("orders", "copies", partitions=2)
    options = {"group": context.name("copiers"), "protocol": "classic", "source": source, "sink": sink}
    sent = []

    def feed():
        values = [f"order {number}" for number in range(len(sent), len(sent) + FED)]
        producer.send_records([(source, number % 2, None, value, []) for number, value in enumerate(values)])
        sent.extend(values)

    def has_copied():
        return copier.call("copier_state", id="c")["copied"]

    with context.producer() as producer:
        for kills_left in range(KILLS_OF_COPIER, -1, -1):
            copier = context.start_another()
            copier.call("copier_open", id="c", transactional_id=context.name("copier"), **options)
            feed()
            eventually(has_copied, "the copier copies", timeout_s=60)
            feed()
            if kills_left:
                copier.kill()
    eventually_equal(lambda: context.client.values([sink]), sorted(sent), timeout_s=120)
    copier.call("copier_close", id="c")
    copier.close()


@step(RECREATED, steps=LONG_STEPS)
def a_topic_created_again_under_its_clients_keeps_nothing(context):
    """A member and a producer, in a transaction if the library has them, go on. What they do later may fail."""
    topic, group = context.topics("again"), context.name("readers")
    in_transactions = TRANSACTIONS not in context.client.missing
    with context.producer() as feeder:
        feeder.send(topic, *(f"old {number}" for number in range(OLD)))
    member = context.client.member(group, [topic])
    eventually(lambda: len(member.records()) == OLD, "the member has read the first topic")
    eventually_equal(lambda: context.client.fetch_offsets(group, topic), [OLD])
    writer = context.producer("writer" if in_transactions else None)
    if in_transactions:
        writer.begin()
    writer.send(topic, "old, by a producer that goes on")
    context.client.delete_topics([topic])
    with suppress(DriverError):  # a client that looks for the topic may have created it
        context.client.create_topics([topic])
    eventually_equal(lambda: context.client.values([topic], "read_uncommitted"), [])
    with suppress(DriverError):  # its partition is another one now
        if in_transactions:
            writer.commit()
    with suppress(DriverError):
        writer.close()
    new = [f"new {number}" for number in range(NEW)]
    with context.producer() as feeder:
        feeder.send(topic, *new)
    assert context.client.values([topic]) == new == context.client.values([topic], "read_uncommitted")
    time.sleep(SETTLED_S)  # the member reads whatever it will read
    later = [record.value.decode() for record in member.records()[OLD:]]
    assert set(later) <= {*new, "old, by a producer that goes on"} and len(set(later)) == len(later)
    ends = [record.offset + 1 for record in context.client.read([topic])]
    assert (context.client.fetch_offsets(group, topic)[0] or 0) <= max(ends)
    with suppress(DriverError):
        member.close()
