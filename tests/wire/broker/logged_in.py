"""Transactions by clients of every library that log in, read by their group. free"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla.client.connection import BlockingConnection
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from tests.timeout import EVENT_TIMEOUT_S

VALUES = [b"%d" % number for number in range(20)]


class Login(NamedTuple):
    """A login by name and password or with tokens. With TLS, clients check the broker's certificate by `ca`."""

    mechanism: str
    name: str = ""
    password: str = ""
    token: Callable[[], str] | None = None
    protocol: str = "SASL_PLAINTEXT"
    ca: Path | None = None


class _Provider(AbstractTokenProvider):
    def __init__(self, token):
        self._token = token

    def token(self):
        return self._token()


def kafka_python_config(address, login):
    """Return the configuration for any client of kafka-python."""
    config = {"bootstrap_servers": address, "security_protocol": login.protocol, "sasl_mechanism": login.mechanism}
    config["ssl_cafile"] = login.ca
    if login.token is not None:
        return config | {"sasl_oauth_token_provider": _Provider(login.token)}
    return config | {"sasl_plain_username": login.name, "sasl_plain_password": login.password}


def refusal(address, login):
    """Log in with kafka-python's mechanisms. Return the broker's error message, or an empty string after a login."""
    host, _, port = address.rpartition(":")
    client = get_sasl_mechanism(login.mechanism)(**kafka_python_config(address, login))
    with BlockingConnection(host, int(port), timeout_s=EVENT_TIMEOUT_S) as connection:
        connection.send(codec.request_class(ApiKey.SASL_HANDSHAKE)(mechanism=login.mechanism), version=1)
        while not client.is_done():
            asked = codec.request_class(ApiKey.SASL_AUTHENTICATE)(auth_bytes=client.auth_bytes())
            reply = connection.send(asked, version=2)
            if reply.error_code:
                assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                return reply.error_message
            client.receive(bytes(reply.auth_bytes))
    return ""


def through_kafka_python(address, login, topic):
    config = kafka_python_config(address, login)
    with KafkaProducer(**config, max_block_ms=EVENT_TIMEOUT_S * 1000, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in VALUES:
            producer.send(topic, value)
        producer.commit_transaction()
    consumer = KafkaConsumer(
        topic, **config, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed",
        consumer_timeout_ms=EVENT_TIMEOUT_S * 1000,
    )  # fmt: skip
    try:
        return [next(consumer).value for _ in VALUES]
    finally:
        consumer.close()


def through_confluent(address, login, topic):
    confluent = pytest.importorskip("confluent_kafka")
    config = {"bootstrap.servers": address, "security.protocol": login.protocol, "sasl.mechanisms": login.mechanism}
    if login.ca is not None:
        config["ssl.ca.location"] = str(login.ca)
    token = login.token
    if token is not None:
        far_s = 4_000_000_000.0
        config |= {"oauth_cb": lambda _: (token(), far_s)}
    else:
        config |= {"sasl.username": login.name, "sasl.password": login.password}
    producer = confluent.Producer({**config, "transactional.id": topic})
    producer.init_transactions(EVENT_TIMEOUT_S)
    producer.begin_transaction()
    for value in VALUES:
        producer.produce(topic, value)
    producer.commit_transaction(EVENT_TIMEOUT_S)
    consumer = confluent.Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        messages = [consumer.poll(EVENT_TIMEOUT_S) for _ in VALUES]
        assert [message.error() for message in messages] == [None] * len(VALUES)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def through_aiokafka(address, login, topic):
    aiokafka = pytest.importorskip("aiokafka")
    config = {"bootstrap_servers": address, "security_protocol": login.protocol, "sasl_mechanism": login.mechanism}
    if login.ca is not None:
        config["ssl_context"] = ssl.create_default_context(cafile=login.ca)

    class Provider(aiokafka.abc.AbstractTokenProvider):
        async def token(self):
            return login.token()

    async def play():
        config.update(
            {"sasl_plain_username": login.name, "sasl_plain_password": login.password}
            if login.token is None
            else {"sasl_oauth_token_provider": Provider()}
        )
        producer = aiokafka.AIOKafkaProducer(**config, transactional_id=topic)
        async with producer, producer.transaction():
            for value in VALUES:
                await producer.send(topic, value)
        consumer = aiokafka.AIOKafkaConsumer(
            topic, **config, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), EVENT_TIMEOUT_S)).value for _ in VALUES]

    return asyncio.run(play())


LIBRARIES = (through_kafka_python, through_confluent, through_aiokafka)
