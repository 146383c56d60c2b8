"""Transactions that fail without a right, a topic, a group or an answer: rows of docs/client.md.

They run on a broker with an authorizer that creates no topic by itself (`rights.GUARD`). What waits has short options.
"""

from contextlib import ExitStack

from kafka.admin import ACLOperation, ResourceType

from ottla.testkit.proxying import ProxyServer
from tests.wire.client.groups import Member
from tests.wire.client.rights import only

TOPIC, GROUP, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
WAIT_MS = 3000
NEVER_MS = 300_000  # the next heartbeat, which a group refuses too
LOOKING_FOR_A_TOPIC = {
    "kafka-python": {},  # see `look_for_topics_shortly`
    "confluent-kafka": {"topic.metadata.propagation.max.ms": 500},
    "aiokafka": {"request_timeout_ms": WAIT_MS},
}
WAITING_FOR_ANSWERS = {  # and timeout_ms
    "kafka-python": ({"delivery_timeout_ms": WAIT_MS, "request_timeout_ms": WAIT_MS}, NEVER_MS),
    "confluent-kafka": ({"message.timeout.ms": WAIT_MS}, NEVER_MS),
    "aiokafka": ({}, 1000),
}
LINGERING = {
    "kafka-python": {"linger_ms": 30_000},
    "confluent-kafka": {"linger.ms": 30_000},
    "aiokafka": {"linger_ms": 30_000},
}


def without_write_first(play):
    """librdkafka then aborts a transaction that the coordinator does not have."""
    play.records = [("send", play.audit, "2")]
    with only(play.broker, TOPIC, play.audit, ACLOperation.DESCRIBE):
        return play.block()


def without_write_then(play):
    first, second = play.records
    play.records = [first, "settle", second]
    with only(play.broker, TOPIC, play.audit, ACLOperation.DESCRIBE):
        return play.block()


def without_describe(play):
    with only(play.broker, TOPIC, play.audit):
        return play.block()


def look_for_topics_shortly(kafka, broker, name, **options):
    """Return a producer that soon stops waiting for a topic."""
    producer = kafka.producer(broker.bootstrap, name, **LOOKING_FOR_A_TOPIC[kafka.name], **options)
    if kafka.name == "kafka-python":
        producer.config["max_block_ms"] = WAIT_MS  # after init_transactions(), which it limits too
    return producer


def missing(play):
    producer = look_for_topics_shortly(play.kafka, play.broker, play.name)
    return play.run(producer, ("send", f"missing-{play.name}", "3"), timeout_ms=NEVER_MS)


def invalid(play):
    return play.block(("send", "no name", "3"))


def without_the_id(play):
    """Return the library's own error, which must be the same without WRITE and without DESCRIBE."""
    raised = set()
    for operations in ((), (ACLOperation.DESCRIBE,)):
        with only(play.broker, TRANSACTIONAL_ID, play.name, *operations):
            raised.add(play.outcome(lambda: play.kafka.producer(play.broker.bootstrap, play.name)))
    return raised.pop() if len(raised) == 1 else str(raised)


def id_withdrawn_before(play):
    producer = play.kafka.producer(play.broker.bootstrap, play.name)
    with only(play.broker, TRANSACTIONAL_ID, play.name, ACLOperation.DESCRIBE):
        return play.run(producer)


def id_withdrawn_inside(play):
    with ExitStack() as rights:
        withdrawn = only(play.broker, TRANSACTIONAL_ID, play.name, ACLOperation.DESCRIBE)
        return play.block("settle", lambda: rights.enter_context(withdrawn))


def group_withdrawn(play, *operations):
    source = play.ledger
    play.run(play.kafka.producer(play.broker.bootstrap, f"feeder-of-{play.name}"))
    play.use_new_topics()
    member = Member(play.kafka, play.broker, play.name, source, play.ledger, session_ms=NEVER_MS)
    member.poll_records()
    with only(play.broker, GROUP, member.group, *operations):
        return play.run(member.producer, **member.options)


def lose_group_read(play):
    return group_withdrawn(play, ACLOperation.DESCRIBE)


def lose_group(play):
    return group_withdrawn(play)


def lose_answers(play):
    """Lose answers after the first records: librdkafka ends the process when AddPartitionsToTxn has no answer."""
    proxy = play.proxies.enter_context(ProxyServer(play.broker.bootstrap))
    late = ["settle", lambda: proxy.add(at="reply", api="Produce", do="lose", times=None), ("send", play.ledger, "3")]
    settings, timeout_ms = WAITING_FOR_ANSWERS[play.kafka.name]
    return play.block(*late, bootstrap=proxy.bootstrap, settings=settings, timeout_ms=timeout_ms)


def not_sent(play):
    return play.block(ZeroDivisionError(), settings=LINGERING[play.kafka.name])


REFUSALS = {
    "no right WRITE on the first topic of a transaction (TOPIC_AUTHORIZATION_FAILED)": without_write_first,
    "no right WRITE on a later topic (TOPIC_AUTHORIZATION_FAILED)": without_write_then,
    "no right on a topic (TOPIC_AUTHORIZATION_FAILED)": without_describe,
    "a topic is not there (UNKNOWN_TOPIC_OR_PARTITION)": missing,
    "the name of a topic is invalid (INVALID_TOPIC_EXCEPTION)": invalid,
    "no right WRITE on the transactional id: `init_transactions()` or `start()` raises": without_the_id,
    "WRITE on the id is withdrawn before the records (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)": id_withdrawn_before,
    "WRITE on the id is withdrawn before the commit (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)": id_withdrawn_inside,
    "READ on the group is withdrawn (GROUP_AUTHORIZATION_FAILED)": lose_group_read,
    "DESCRIBE on the group is withdrawn too (GROUP_AUTHORIZATION_FAILED)": lose_group,
}
WAITS = {
    "a record is never answered": lose_answers,
    "the block raises before its records are sent": not_sent,
}
