"""Rights on one resource for clients that do not log in: User:ANONYMOUS, on a broker with an authorizer.

Where an authorizer has `allow.everyone.if.no.acl.found=true`, the first entry takes a resource from all others.
"""

import contextlib
import time

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
)

from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.client.topics import administrator

GUARD = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}


@contextlib.contextmanager
def only(broker, kind, name, *operations):
    """Allow only these operations on a resource: an entry of another user makes entries necessary for all."""
    take_rights(broker, kind, name, *operations)
    try:
        yield
    finally:
        with administrator(broker) as admin:
            admin.delete_acls([_entries_of(kind, name)])
            _wait_for(admin, kind, name, 0)


def take_rights(broker, kind, name, *operations):
    pattern = ResourcePattern(kind, name, ACLResourcePatternType.LITERAL)
    rights = [("User:somebody", ACLOperation.READ), *(("User:ANONYMOUS", operation) for operation in operations)]
    entries = [ACL(who, "*", operation, ACLPermissionType.ALLOW, pattern) for who, operation in rights]
    with administrator(broker) as admin:
        made = admin.create_acls(entries)
        assert len(made["succeeded"]) == len(entries), made
        _wait_for(admin, kind, name, len(entries))


def _entries_of(kind, name):
    pattern = ResourcePatternFilter(kind, name, ACLResourcePatternType.LITERAL)
    return ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)


def _wait_for(admin, kind, name, count):
    """Wait until the entries are in force: Kafka's broker gets them a moment after the controller answered."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while len(admin.describe_acls(_entries_of(kind, name))[0]) != count:
        assert time.monotonic() < deadline, "the entries are not in force"
        time.sleep(0.02)
