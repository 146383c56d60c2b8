"""Changes of ACLs, users and quotas: when they take effect, the listeners called, and the state after a failure."""

import errno
import logging
from types import SimpleNamespace

import pytest

from lab.metadata import change_security
from ottla.broker.cluster import controller
from ottla.broker.cluster.controller import ACLS
from ottla.protocol.internal_topics.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

USER = UserScramCredentialRecord("alice", 2, b"SALT", b"STORED", b"SERVER", 8192)
BY_USER_AND_ID = (("user", "alice"), ("client-id", None))
BY_ID_AND_USER = (("client-id", None), ("user", "alice"))
RATE = "producer_byte_rate"


def acl(number, name="ledger"):
    return AccessControlEntryRecord(number.to_bytes(16, "big"), 2, name, 3, "User:alice", "*", 3, 3)


class Changes:
    """A broker whose syncs end when the test ends them, and the security changes that its listeners received."""

    def __init__(self, parts, monkeypatch):
        self.parts, self.jobs, self.heard = parts, [], []
        self.controller = parts.cluster.controller
        self.controller.on_security_changed.append(self.heard.append)
        monkeypatch.setattr(type(parts.disk), "start_sync", lambda _disk, paths, on_end: self.hold(on_end))

    def hold(self, on_end):
        job = SimpleNamespace(done=False, error=None, on_end=on_end)
        self.jobs.append(job)
        return job

    def end_sync(self, error=None):
        (job,) = self.jobs
        self.jobs.clear()
        job.done, job.error = True, error
        job.on_end()
        self.parts.settle()

    def begin(self, decide, *claims):
        answers = []
        work = self.controller.change_security(claims, decide)
        turns = self.parts.turns
        turns.event(lambda: setattr(self, "activity", turns.start(work, answers.append, answers.append)))
        return answers


async def _of(*records):
    return records


@pytest.fixture
def changes(parts, monkeypatch):
    return Changes(parts, monkeypatch)


def test_every_kind_is_in_force_and_outlives_a_kill(parts):
    change_security(parts.cluster, [acl(1), acl(2), USER, ClientQuotaRecord(BY_USER_AND_ID, RATE, 1.5, False)])
    change_security(parts.cluster, [ClientQuotaRecord(BY_ID_AND_USER, "request_percentage", 7.0, False)])
    image = parts.cluster.image
    assert image.acls == {acl(1).id: acl(1), acl(2).id: acl(2)}
    assert image.scram_credentials == {("alice", 2): USER}
    assert image.client_quotas == {BY_ID_AND_USER: {RATE: 1.5, "request_percentage": 7.0}}
    parts.kill()
    parts.start()
    assert parts.cluster.image == image


def test_removed_security_entries_stay_removed_after_a_kill(parts):
    given = [acl(1), acl(2), USER, ClientQuotaRecord(BY_USER_AND_ID, RATE, 1.5, False)]
    change_security(parts.cluster, given)
    removed = [
        RemoveAccessControlEntryRecord(acl(1).id),
        RemoveUserScramCredentialRecord("alice", 2),
        ClientQuotaRecord(BY_ID_AND_USER, RATE, 0.0, True),
        ClientQuotaRecord((("user", "nobody"),), RATE, 0.0, True),
    ]
    change_security(parts.cluster, removed)
    parts.kill()
    parts.start()
    image = parts.cluster.image
    assert (image.acls, image.scram_credentials, image.client_quotas) == ({acl(2).id: acl(2)}, {}, {})


def test_a_quota_change_does_not_modify_quotas_read_before(parts):
    change_security(parts.cluster, [ClientQuotaRecord(BY_ID_AND_USER, RATE, 1.5, False)])
    held = parts.cluster.image.client_quotas[BY_ID_AND_USER]
    change_security(parts.cluster, [ClientQuotaRecord(BY_ID_AND_USER, RATE, 2.5, False)])
    assert held == {RATE: 1.5}


def test_a_security_change_is_applied_when_durable_even_without_its_client(changes):
    answers = changes.begin(lambda: _of(acl(1), USER), ACLS)
    changes.parts.settle()
    assert (answers, changes.heard, changes.parts.cluster.image.acls) == ([], [], {})
    changes.activity.discard()  # its client has gone away
    changes.end_sync()
    assert changes.parts.cluster.image.acls == {acl(1).id: acl(1)}
    assert changes.heard == [(acl(1), USER)]


def test_a_second_security_change_waits_for_the_first_and_sees_it(changes):
    seen = []

    async def second():
        seen.append(dict(changes.parts.cluster.image.acls))
        return []

    changes.begin(lambda: _of(acl(1)), ACLS)
    answers = changes.begin(second, ACLS)
    changes.parts.settle()
    assert (seen, answers) == ([], [])
    changes.end_sync()
    assert (seen, answers) == ([{acl(1).id: acl(1)}], [None])


def test_an_empty_security_change_writes_no_record(changes):
    before = changes.parts.cluster.metadata_log.partition.log_end_offset
    answers = changes.begin(lambda: _of(), ACLS)
    changes.parts.settle()
    assert answers == [None]
    assert changes.parts.cluster.metadata_log.partition.log_end_offset == before


def test_many_entries_are_one_batch_and_reach_listeners_in_parts(changes, monkeypatch):
    monkeypatch.setattr(controller, "ENCODE_CONFIG_US", 11.0)
    first = changes.parts.cluster.metadata_log.partition.log_end_offset
    many = [acl(number) for number in range(450)]
    answers = changes.begin(lambda: _of(*many), ACLS)
    changes.parts.settle()
    (_,) = [header for header, _ in changes.parts.cluster.metadata_log.partition.scan(first)]
    changes.end_sync()
    assert [len(part) for part in changes.heard] == [200, 200, 50]
    assert answers == [None]


def test_a_security_change_that_fails_to_sync_is_not_applied(changes):
    answers = changes.begin(lambda: _of(acl(1)), ACLS)
    changes.parts.settle()
    changes.end_sync(OSError(errno.EIO, "Input/output error"))
    (error,) = answers
    assert isinstance(error, OSError)
    assert (changes.heard, changes.parts.cluster.image.acls) == ([], {})


def test_security_changes_are_logged_without_secrets(parts, caplog):
    removed = [
        RemoveAccessControlEntryRecord(acl(1).id),
        RemoveAccessControlEntryRecord(acl(2).id),
        RemoveUserScramCredentialRecord("alice", 2),
        RemoveUserScramCredentialRecord("alice", 9),
        ClientQuotaRecord((("user", None),), RATE, 0.0, True),
    ]
    with caplog.at_level(logging.INFO):
        change_security(parts.cluster, [acl(1), USER, ClientQuotaRecord(BY_USER_AND_ID, RATE, 1048576.0, False)])
        change_security(parts.cluster, removed)
        change_security(parts.cluster, [acl(number)._replace(operation=77) for number in range(103)])
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Changed security")]
    entry = (
        "ACL AAAAAAAAAAAAAAAAAAAAAQ (principal=User:alice, host=*, operation=READ, permissionType=ALLOW) on "
        "(resourceType=TOPIC, name=ledger, patternType=LITERAL)"
    )
    assert told[0] == (
        f"Changed security: {entry}, "
        "SCRAM-SHA-512 of user alice with 8192 iterations, "
        "quota producer_byte_rate of user alice, client-id <default> = 1048576.0"
    )
    assert told[1] == (
        f"Changed security: {entry} removed, ACL AAAAAAAAAAAAAAAAAAAAAg removed, SCRAM-SHA-512 of user alice removed, "
        "mechanism 9 of user alice removed, quota producer_byte_rate of user <default> removed"
    )
    assert "operation=77" in told[2] and told[2].endswith(" (and 3 more)")
    assert not any(secret in caplog.text for secret in ("SALT", "STORED", "SERVER"))
