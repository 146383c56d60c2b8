"""ACLs of a cluster or a data directory. shell"""

import time
from collections.abc import Iterable
from pathlib import Path

from ottla.cli.acl.question import Question
from ottla.protocol.acls import PatternType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord
from ottla.wire import Unanswered
from ottla.wire.brokers import Brokers, acls_request, parse_address
from ottla.wire.client_properties import client_options
from ottla.wire.login import error_name


def entries_of_cluster(
    question: Question, bootstrap: str, properties: Path | None, timeout_s: float
) -> list[AccessControlEntryRecord]:
    """Return the ACLs whose pattern matches the name, without ids. Raises Unanswered; ValueError for a bad option."""
    addresses = [parse_address(part) for part in bootstrap.split(",")]
    request = acls_request(question.resource_type, question.name, PatternType.MATCH)
    with Brokers(addresses, timeout_s, client_options(properties)) as brokers:
        reply = brokers.ask_any(request)
    if reply.error_code == ErrorCode.SECURITY_DISABLED:
        raise Unanswered("the broker has no authorizer (authorizer.class.name): every client may do everything")
    if reply.error_code:
        detail = f": {reply.error_message:.300}" if reply.error_message else ""
        raise Unanswered(f"{bootstrap}: {error_name(reply.error_code)}{detail}")
    return [
        AccessControlEntryRecord(
            b"",
            pattern.resource_type,
            pattern.resource_name,
            pattern.pattern_type,
            entry.principal,
            entry.host,
            entry.operation,
            entry.permission_type,
        )
        for pattern in reply.resources
        for entry in pattern.acls
    ]


def entries_of_directory(path: Path) -> Iterable[AccessControlEntryRecord]:
    """Return all ACLs of the directory's metadata. Raises Unanswered."""
    from ottla.cli.inspect.directory import Directory

    try:
        directory = Directory(path)
        directory.read_metadata(round(time.time() * 1000))
    except OSError as error:
        raise Unanswered(f"{error.filename or path}: {error.strerror or error}") from None
    if directory.problems:
        raise Unanswered(f"{path}: {'; '.join(directory.problems)}")
    return directory.image.acls.values()
