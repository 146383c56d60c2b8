"""The strict readers: they read the library's bytes and refuse invalid ones, in every API and version."""

import random

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import MAX_TAGS, is_flexible
from ottla.protocol.walker import STEP_ENTRIES, compile_reader, compile_stepped_reader
from tests.wire.messages import MessageMaker, every_message, library_bytes, library_message

MESSAGES = list(every_message())
SEEDS = range(4)


def reader_of(message_class, api_key, version):
    return compile_reader(message_class, version, flexible=is_flexible(api_key, version))


def stepped_reader_of(message_class, api_key, version):
    """Return a function that reads a body to its end and also returns the number of steps before it."""
    flexible = is_flexible(api_key, version)
    read = compile_stepped_reader(message_class, version, flexible=flexible, max_entries=1 << 20)

    def read_all(body):
        rests, steps = 0, read(body)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                message, taken, _ = end.value
                return message, taken, rests
            rests += 1

    return read_all


def samples(message_class, version):
    for seed in SEEDS:
        message = MessageMaker(random.Random(f"{message_class.__name__} {version} {seed}"), version).make(message_class)
        yield library_bytes(message, message_class, version)


def test_flexible_versions_are_those_of_the_schemas():
    for message_class, api_key, version in MESSAGES:
        assert message_class.flexible_version_q(version) == is_flexible(api_key, version), (api_key, version)


@pytest.mark.slow
def test_readers_agree_with_the_library_on_sound_bodies():
    for message_class, api_key, version in MESSAGES:
        read = reader_of(message_class, api_key, version)
        for body in samples(message_class, version):
            message, taken = read(body + b"tail")
            expected, _ = library_message(body, message_class, version)
            assert taken == len(body)
            assert message.to_dict(json=False) == expected.to_dict(json=False)
            assert library_bytes(message, message_class, version) == body


@pytest.mark.slow
def test_every_cut_of_a_sound_body_is_refused():
    cuts = 0
    for message_class, api_key, version in MESSAGES:
        read = reader_of(message_class, api_key, version)
        for body in list(samples(message_class, version))[:2]:
            for cut in range(len(body)):
                cuts += 1
                with pytest.raises(ProtocolError):
                    read(body[:cut])
    assert cuts > 50_000


@pytest.mark.slow
def test_null_in_a_field_that_has_none_is_refused():
    nulls = 0
    for message_class, api_key, version in MESSAGES:
        read = reader_of(message_class, api_key, version)
        name = f"{message_class.__name__} {version}"
        sites = MessageMaker(random.Random(name), version)
        sites.make(message_class)
        for site in range(sites.sites):
            maker = MessageMaker(random.Random(name), version, null_at=site)
            body = library_bytes(maker.make(message_class), message_class, version)
            nulls += 1
            with pytest.raises(ProtocolError):
                read(body)
    assert nulls > 1_000


@pytest.mark.slow
def test_damaged_bodies_give_a_message_or_a_protocol_error():
    rng = random.Random(5)
    refused = 0
    for message_class, api_key, version in MESSAGES:
        read = reader_of(message_class, api_key, version)
        for body in samples(message_class, version):
            damaged = bytearray(body)
            for _ in range(rng.choice((1, 2, 5))):
                if damaged:
                    damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            try:
                _, taken = read(bytes(damaged))
            except ProtocolError:
                refused += 1
            else:
                assert taken <= len(damaged)
    assert refused > 100


def test_noise_gives_a_message_or_a_protocol_error():
    rng = random.Random(6)
    for message_class, api_key, version in MESSAGES:
        read = reader_of(message_class, api_key, version)
        for _ in range(20):
            noise = rng.randbytes(rng.randrange(60))
            try:
                _, taken = read(noise)
            except ProtocolError:
                continue
            assert taken <= len(noise)


def test_unknown_tags_are_skipped_up_to_the_limit():
    for message_class, api_key, version in MESSAGES:
        if not is_flexible(api_key, version):
            continue
        read = reader_of(message_class, api_key, version)
        message = MessageMaker(random.Random(1), version, tags=False).make(message_class)
        plain = library_bytes(message, message_class, version)
        assert plain[-1] == 0
        most = plain[:-1] + bytes([MAX_TAGS]) + b"\xe8\x07\x02hi" * MAX_TAGS
        message, taken = read(most)
        assert taken == len(most)
        assert library_bytes(message, message_class, version) == plain
        with pytest.raises(ProtocolError, match="tagged fields"):
            read(plain[:-1] + bytes([MAX_TAGS + 1]) + b"\xe8\x07\x02hi" * (MAX_TAGS + 1))
        with pytest.raises(ProtocolError):
            read(plain[:-1] + b"\xff\xff\xff\xff\x07")


@pytest.mark.slow
def test_readers_in_steps_read_and_refuse_the_same():
    for message_class, api_key, version in MESSAGES:
        read, read_all = reader_of(message_class, api_key, version), stepped_reader_of(message_class, api_key, version)
        for body in samples(message_class, version):
            message, taken, rests = read_all(body + b"tail")
            assert (message.to_dict(json=False), taken) == (read(body)[0].to_dict(json=False), len(body))
            assert rests <= len(body) // STEP_ENTRIES
            for cut in range(0, len(body), 7):
                with pytest.raises(ProtocolError) as plain:
                    read(body[:cut])
                with pytest.raises(ProtocolError) as stepped:
                    read_all(body[:cut])
                assert str(plain.value) == str(stepped.value)


@pytest.mark.parametrize("topics, partitions", [(1, 3_000), (3_000, 1), (60, 50)])
def test_a_stepped_reader_pauses_by_entries_read_at_any_nesting(topics, partitions):
    request = codec.request_class(ApiKey.DELETE_RECORDS)
    topic = request.DeleteRecordsTopic
    rows = [topic.DeleteRecordsPartition(version=2, partition_index=n, offset=n) for n in range(partitions)]
    message = request(version=2, topics=[topic(version=2, name="t", partitions=rows)] * topics, timeout_ms=1)
    body = bytes(message.encode(version=2))
    _, taken, rests = stepped_reader_of(request, ApiKey.DELETE_RECORDS, 2)(body)
    assert taken == len(body)
    assert rests == (topics + topics * partitions) // STEP_ENTRIES
