"""Each client library with each kind of login: create a topic, commit, abort, read in a group, list both."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.logins import LISTENERS, WAYS, Keys, Way, make_user, of_aiokafka, of_confluent, of_kafka_python, options
from tests.timeout import EVENT_TIMEOUT_S

sys.path.insert(0, str(Path(__file__).parent))

from served import serving

PATIENCE_MS = EVENT_TIMEOUT_S * 1000
PAGE = Path(__file__).parents[3] / "docs" / "secure.md"
KEPT = [b"%d" % number for number in range(10)]


def through_kafka_python(config, name):
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic
    from kafka.structs import OffsetAndMetadata

    admin = KafkaAdminClient(**config)
    admin.create_topics([NewTopic(name, 1, 1)])
    with KafkaProducer(**config, max_block_ms=PATIENCE_MS, transactional_id=name) as producer:
        producer.init_transactions()
        for values in ([b"dropped"], KEPT):
            producer.begin_transaction()
            for value in values:
                producer.send(name, value)
            if values is KEPT:
                positions = {TopicPartition(name, 0): OffsetAndMetadata(1, "", -1)}
                producer.send_offsets_to_transaction(positions, f"{name}-sent")
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    consumer = KafkaConsumer(
        name,
        **config,
        group_id=name,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=PATIENCE_MS,
    )
    found = [next(consumer).value for _ in KEPT]
    consumer.commit()
    consumer.close()
    groups = {row["group_id"] if isinstance(row, dict) else row.group_id for row in admin.list_groups()}
    topics = set(admin.list_topics())
    admin.close()
    return found, {name, f"{name}-sent"} <= groups, name in topics


def through_confluent(config, name):
    confluent = pytest.importorskip("confluent_kafka")
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(config)
    admin.poll(0)  # a token is asked for in here
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(EVENT_TIMEOUT_S)
    producer = confluent.Producer({**config, "transactional.id": name})
    producer.init_transactions(EVENT_TIMEOUT_S)
    for values in ([b"dropped"], KEPT):
        producer.begin_transaction()
        for value in values:
            producer.produce(name, value)
        producer.flush(EVENT_TIMEOUT_S)
        if values is KEPT:
            producer.commit_transaction(EVENT_TIMEOUT_S)
        else:
            producer.abort_transaction(EVENT_TIMEOUT_S)
    consumer = confluent.Consumer({**config, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    found = [consumer.poll(EVENT_TIMEOUT_S).value() for _ in KEPT]
    consumer.commit(asynchronous=False)
    consumer.close()
    groups = {row.group_id for row in admin.list_consumer_groups().result(EVENT_TIMEOUT_S).valid}
    return found, name in groups, name in admin.list_topics(timeout=EVENT_TIMEOUT_S).topics


def through_aiokafka(config, name):
    aiokafka = pytest.importorskip("aiokafka")
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    async def play():
        admin = AIOKafkaAdminClient(**config)
        await admin.start()
        await admin.create_topics([NewTopic(name, 1, 1)])
        async with aiokafka.AIOKafkaProducer(**config, transactional_id=name) as producer:
            await producer.begin_transaction()
            await producer.send(name, b"dropped")
            await producer.abort_transaction()
            async with producer.transaction():
                for value in KEPT:
                    await producer.send(name, value)
        consumer = aiokafka.AIOKafkaConsumer(
            name, **config, group_id=name, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        async with consumer:
            found = [(await asyncio.wait_for(consumer.getone(), EVENT_TIMEOUT_S)).value for _ in KEPT]
            await consumer.commit()
        groups = {group for group, *_ in await admin.list_consumer_groups()}
        topics = await admin.list_topics()
        await admin.close()
        return found, name in groups, name in topics

    return asyncio.run(play())


class Rooms:
    """The broker's listeners by protocol, and the signer of its clients' tokens."""

    def __init__(self, addresses, certificates, keys):
        self.ports = {name: port for name, _, port in addresses}
        self.certificates, self.keys = certificates, keys

    def config(self, of_library, way):
        return of_library(way, f"localhost:{self.ports[way.protocol]}", self.certificates, self.keys)


@pytest.fixture(scope="module")
def rooms(tmp_path_factory, certificates):
    pytest.importorskip("joserfc")
    directory = tmp_path_factory.mktemp("ways")
    keys = Keys()
    (directory / "jwks.json").write_text(keys.jwks())
    given = options(certificates, directory / "jwks.json")
    with serving(directory, len(LISTENERS), *(f"{key}={given[key]}" for key in given)) as found:
        rooms = Rooms(found, certificates, keys)
        make_user(f"localhost:{rooms.ports['PLAINTEXT']}")
        yield rooms


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize(
    ("through", "of_library"),
    [
        (through_kafka_python, of_kafka_python),
        pytest.param(through_confluent, of_confluent, marks=pytest.mark.slow),
        pytest.param(through_aiokafka, of_aiokafka, marks=pytest.mark.slow),
    ],
    ids=["kafka-python", "confluent-kafka", "aiokafka"],
)
def test_a_client_commits_and_reads_with_each_kind_of_login(rooms, through, of_library, way):
    name = f"{through.__name__.replace('_', '-')}-{way.name}"
    assert through(rooms.config(of_library, way), name) == (KEPT, True, True)


def test_the_page_has_a_row_for_each_way():
    rows = re.findall(r"^\| (\w+) \| ([\w-]*) \|(?: yes \|)+$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [Way(*row) for row in rows] == WAYS
