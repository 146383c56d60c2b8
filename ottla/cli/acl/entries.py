"""The entries that a broker or a data directory has. shell"""

import time
from collections.abc import Iterable
from pathlib import Path

from ottla.cli.acl.question import Question
from ottla.cli.client_properties import client_options
from ottla.client.acls import AclsRefused, describe_acls
from ottla.protocol.security_records import AccessControlEntryRecord


class Unanswered(Exception):
    """There are no entries to decide by; the message is one line that says why."""


def entries_of_cluster(
    question: Question, bootstrap: str, properties: Path | None, timeout_s: float
) -> list[AccessControlEntryRecord]:
    """Those whose pattern the name matches. Unanswered, or ValueError for an option that cannot be."""
    options = client_options(properties)
    try:
        return describe_acls(bootstrap.split(","), options, question.resource_type, question.name, timeout_s)
    except AclsRefused as error:
        raise Unanswered(str(error)) from None


def entries_of_directory(path: Path) -> Iterable[AccessControlEntryRecord]:
    """All that its metadata has. Unanswered."""
    from ottla.cli.inspect.directory import Directory

    try:
        directory = Directory(path)
        directory.read_metadata(round(time.time() * 1000))
    except OSError as error:
        raise Unanswered(f"{error.filename or path}: {error.strerror or error}") from None
    if directory.problems:
        raise Unanswered(f"{path}: {'; '.join(directory.problems)}")
    return directory.image.acls.values()
