"""Changes of the metadata: the state that others see during a change, and the state after a failed one."""

import errno
from types import SimpleNamespace

import pytest

from lab.metadata import create_topic, reserve_producer_ids
from ottla.broker.api import create_topics, delete_topics, metadata
from ottla.broker.api.request import Request
from ottla.broker.cluster import controller
from ottla.broker.config import Config
from ottla.broker.log.flusher import Flusher
from ottla.broker.security.session import Session
from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from tests.broker_stub import broker_of
from tests.replies import message_of


class Held:
    """A broker whose syncs end when the test ends them, and its handlers."""

    def __init__(self, parts, monkeypatch):
        self.parts, self.jobs, self.release = parts, [], monkeypatch.undo
        monkeypatch.setattr(type(parts.disk), "start_sync", lambda _disk, paths, on_end: self.hold(paths, on_end))

    def hold(self, paths, on_end):
        job = SimpleNamespace(done=False, error=None, paths=paths, on_end=on_end)
        self.jobs.append(job)
        return job

    def begin(self, module, key, version, body):
        parts, replies = self.parts, []
        context = broker_of(
            cluster=parts.cluster,
            turns=parts.turns,
            config=Config(),
            logs=parts.logs,
            endpoints={},
        )
        handler = module.handle(context, Request(key, version, 1, "", Session(), body))

        def add_reply(reply):
            replies.append(message_of(reply, key, version))

        parts.turns.event(lambda: setattr(self, "activity", parts.turns.start(handler, add_reply, print)))
        return replies

    def create(self, *names, partitions=1):
        request = codec.request_class(ApiKey.CREATE_TOPICS)
        rows = [
            request.CreatableTopic(
                version=5, name=n, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
            )
            for n in names
        ]
        return self.begin(create_topics, 19, 5, request(version=5, topics=rows, timeout_ms=1, validate_only=False))

    def delete(self, *names):
        body = codec.request_class(ApiKey.DELETE_TOPICS)(version=5, topic_names=[*names], timeout_ms=1)
        return self.begin(delete_topics, 20, 5, body)

    def ask_for(self, *names):
        request = codec.request_class(ApiKey.METADATA)
        rows = [request.MetadataRequestTopic(version=5, name=name) for name in names]
        return self.begin(metadata, 3, 5, request(version=5, topics=rows, allow_auto_topic_creation=True))

    def end_sync(self, error=None):
        self.parts.settle()
        (job,) = self.jobs
        self.jobs.clear()
        job.done, job.error = True, error
        job.on_end()
        self.parts.settle()
        return job.paths


@pytest.fixture
def caller(parts, monkeypatch):
    return Held(parts, monkeypatch)


def codes(replies):
    (reply,) = replies
    rows = reply.responses if hasattr(reply, "responses") else reply.topics
    return [row.error_code for row in rows]


def test_a_topic_exists_when_its_record_is_durable(caller):
    created = caller.create("ledger")
    caller.parts.settle()
    assert created == [] and "ledger" not in caller.parts.cluster.topics
    assert caller.parts.directories() == ["__cluster_metadata-0"]
    caller.end_sync()
    assert codes(created) == [E.NONE]
    assert caller.parts.directories() == ["__cluster_metadata-0", "ledger-0"]


def test_all_topics_of_a_request_share_one_sync_without_a_directory(caller):
    caller.create("first")
    caller.end_sync()
    created = caller.create(*(f"t{number}" for number in range(20)))
    asked = caller.ask_for("auto-1", "auto-2")
    (path,) = caller.end_sync()
    assert path.endswith(".log")
    assert codes(created) == [E.NONE] * 20 and codes(asked) == [E.NONE] * 2


def test_of_many_topics_some_are_applied_before_the_others_are_logged(caller, monkeypatch):
    monkeypatch.setattr(controller, "CHANGED_AT_ONCE", 10)
    created = caller.create(*(f"t{number}" for number in range(25)))
    seen = []
    while not created:
        seen.append(len(caller.parts.cluster.topics))
        caller.end_sync()
    assert seen == [0, 10, 20]
    assert codes(created) == [E.NONE] * 25


def test_the_second_concurrent_creation_of_a_topic_gets_already_exists(caller):
    one, other = caller.create("ledger", "a"), caller.create("b", "ledger")
    caller.end_sync()
    assert codes(one) == [E.NONE] * 2 and other == []
    caller.end_sync()
    assert codes(other) == [E.NONE, E.TOPIC_ALREADY_EXISTS]


def test_names_that_collide_are_decided_one_after_the_other(caller):
    one, other = caller.create("my.topic"), caller.create("my_topic")
    caller.end_sync()
    assert codes(one) == [E.NONE]
    caller.parts.settle()
    assert codes(other) == [E.INVALID_TOPIC_EXCEPTION]


def test_all_partitions_are_removed_once_the_deletion_is_durable(caller):
    create_topic(caller.parts.cluster, "ledger", 3)
    caller.parts.settle()
    partition = caller.parts.cluster.partition("ledger", 2)
    deleted = caller.delete("ledger")
    assert caller.parts.cluster.partition("ledger", 2) is partition and partition.offline is None
    caller.end_sync()
    assert codes(deleted) == [E.NONE]
    assert [caller.parts.cluster.partition("ledger", index) for index in range(3)] == [None] * 3
    assert partition.offline == "the partition was deleted"


def test_a_name_is_free_when_nothing_of_the_deleted_topic_is_left(caller):
    parts = caller.parts
    old = create_topic(parts.cluster, "ledger", 3)
    parts.settle()
    parts.disk.charge = lambda cost_us: parts.turns.charge(SHARE_US)  # each call uses the whole turn budget
    deleted, created = caller.delete("ledger"), caller.create("ledger")
    caller.end_sync()
    assert codes(deleted) == [E.NONE] and created == []
    assert [name[-7:] for name in parts.directories() if name.startswith("ledger")] == ["-delete"] * 3
    caller.end_sync()
    assert codes(created) == [E.NONE]
    assert parts.cluster.topics["ledger"].topic_id != old.topic_id
    assert parts.cluster.partition("ledger", 0).topic_id == parts.cluster.topics["ledger"].topic_id


def test_a_deletion_renames_its_directories_over_many_turns(caller):
    parts = caller.parts
    create_topic(parts.cluster, "wide", 8)
    parts.settle()
    parts.disk.charge = lambda cost_us: parts.turns.charge(SHARE_US)
    deleted = caller.delete("wide")
    parts.settle()
    (job,) = caller.jobs
    job.done = True
    job.on_end()
    left = []
    while parts.clock.next:
        parts.turns.event(parts.clock.next.pop(0))
        left.append(sum(name.startswith("wide") and not name.endswith("-delete") for name in parts.directories()))
        assert parts.cluster.partition("wide", 7) is None or not codes(deleted)
    assert sorted(set(left), reverse=True) == [*range(7, -1, -1)]


def test_a_deletion_that_was_killed_before_its_directories_moved_is_one_all_the_same(caller):
    parts = caller.parts
    create_topic(parts.cluster, "gone", 2)
    parts.settle()
    caller.delete("gone")
    parts.disk.charge = lambda cost_us: parts.turns.charge(SHARE_US)
    parts.settle()
    (job,) = caller.jobs
    job.done = True
    job.on_end()
    parts.turns.event(parts.clock.next.pop(0))
    parts.kill()
    parts.start()
    assert "gone" not in parts.cluster.topics
    assert not [name for name in parts.directories() if name in ("gone-0", "gone-1")]


def test_a_stop_renames_the_remaining_directories_of_a_deletion(caller):
    parts = caller.parts
    create_topic(parts.cluster, "gone", 4)
    parts.settle()
    caller.delete("gone")
    parts.disk.charge = lambda cost_us: parts.turns.charge(SHARE_US)
    parts.settle()
    (job,) = caller.jobs
    job.done = True
    job.on_end()
    parts.turns.event(parts.clock.next.pop(0))
    assert "gone-3" in parts.directories()
    parts.cluster.stop()
    caller.release()
    parts.stop()
    parts.settle()
    left = parts.directories()
    assert [name for name in left if name.startswith("gone")] == [name for name in left if name.endswith("-delete")]


def test_a_change_is_completed_after_its_client_disconnects(caller):
    caller.create("ledger")
    caller.activity.discard()
    caller.end_sync()
    assert "ledger" in caller.parts.cluster.topics
    again = caller.create("ledger")
    caller.parts.settle()
    assert codes(again) == [E.TOPIC_ALREADY_EXISTS]


def test_after_a_failed_sync_nothing_is_changed_and_the_directory_is_offline(caller):
    create_topic(caller.parts.cluster, "kept")
    caller.parts.settle()
    created, deleted, asked = caller.create("new", "kept"), caller.delete("kept"), caller.ask_for("auto")
    caller.end_sync(OSError(errno.EIO, "Input/output error"))
    assert codes(created) == [E.KAFKA_STORAGE_ERROR, E.TOPIC_ALREADY_EXISTS]
    assert codes(deleted) == codes(asked) == [E.KAFKA_STORAGE_ERROR]
    assert list(caller.parts.cluster.topics) == ["kept"]
    assert "Input/output error" in caller.parts.logs.offline


def test_a_topic_named_twice_is_not_deleted(caller):
    create_topic(caller.parts.cluster, "ledger")
    caller.parts.settle()
    deleted = caller.delete("ledger", "ledger", "other")
    caller.parts.settle()
    assert codes(deleted) == [E.INVALID_REQUEST, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert "ledger" in caller.parts.cluster.topics


@pytest.mark.slow
def test_the_image_is_what_its_records_replay_to(caller):
    create_topic(caller.parts.cluster, "wide", 1200, {"size": "100"})
    create_topic(caller.parts.cluster, "a.b")
    reserve_producer_ids(caller.parts.cluster)
    caller.parts.settle()
    live = caller.parts.cluster.image
    caller.release()
    caller.parts.stop()
    caller.parts.start()
    assert caller.parts.cluster.image == live
    assert caller.parts.cluster.image.colliding_topic("a_b") == "a.b"


# --- producer ids


def test_no_producer_id_is_given_out_of_a_block_that_is_not_durable(caller):
    got = []
    assert caller.parts.cluster.next_producer_id() is None
    caller.parts.turns.event(lambda: caller.parts.turns.start(caller.parts.cluster.producer_ids(), got.append, print))
    caller.parts.settle()
    assert got == [] and caller.parts.cluster.next_producer_id() is None
    caller.end_sync()
    assert got == [True] and caller.parts.cluster.next_producer_id() == 0


def test_the_next_producer_id_block_is_reserved_before_the_last_runs_out(caller):
    reserve_producer_ids(caller.parts.cluster)
    caller.parts.settle()
    given = [caller.parts.cluster.next_producer_id() for _ in range(900)]
    caller.parts.settle()
    assert not caller.jobs
    given.append(caller.parts.cluster.next_producer_id())
    caller.end_sync()
    given += [caller.parts.cluster.next_producer_id() for _ in range(1000)]
    assert given == [*range(1901)]


def test_without_a_block_that_can_be_logged_there_is_no_producer_id(caller):
    got = []
    caller.parts.turns.event(lambda: caller.parts.turns.start(caller.parts.cluster.producer_ids(), got.append, print))
    caller.end_sync(OSError(errno.EIO, "Input/output error"))
    caller.parts.turns.event(lambda: caller.parts.turns.start(caller.parts.cluster.producer_ids(), got.append, print))
    assert got == [False, False]
    assert caller.parts.cluster.next_producer_id() is None


def test_a_producer_id_block_durable_at_once_is_available_at_once(parts, monkeypatch):
    def flush(_, partition):
        partition.complete_flush(partition.log_end_offset)

    monkeypatch.setattr(Flusher, "flush", flush)
    parts.stop()
    parts.start()
    answers = []
    parts.turns.event(lambda: parts.turns.start(parts.cluster.producer_ids(), answers.append, print))
    assert answers == [True]
    assert parts.cluster.next_producer_id() is not None
