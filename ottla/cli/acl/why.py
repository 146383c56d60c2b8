"""The decision of the entries, and the line of `kafka-acls` that changes it. pure"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.broker.security.acl import AclAuthorizer, Decision
from ottla.broker.security.acl_filter import AclFilter
from ottla.cli.acl.question import Question
from ottla.cli.output import Output
from ottla.printable import shell_line
from ottla.protocol.acls import (
    OPERATION_NAMES,
    RESOURCE_TYPE_NAMES,
    WILDCARD,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord

_ANY = 1
_OPTIONS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user-principal",
}
_UNSEEN = (
    "Not visible to this command: super.users, which may do everything, and allow.everyone.if.no.acl.found, which "
    "allows everything that no entry is about."
)


class Explanation(NamedTuple):
    """The decision. `about` are the entries of all principals whose pattern matches the name."""

    question: Question
    decision: Decision
    about: Sequence[AccessControlEntryRecord]


def explain(question: Question, entries: Iterable[AccessControlEntryRecord]) -> Explanation:
    """Decide like a broker without super users that allows nothing by default."""
    authorizer = AclAuthorizer()
    touching = AclFilter(question.resource_type, question.name, PatternType.MATCH, None, None, _ANY, _ANY)
    about = [entry for entry in entries if touching.matches(entry)]
    for number, entry in enumerate(about):
        authorizer.add(entry._replace(id=number.to_bytes(16, "big")))
    decision = authorizer.why(
        question.principal, question.host, question.operation, question.resource_type, question.name
    )
    return Explanation(question, decision, about)


def show(found: Explanation, output: Output, bootstrap: str) -> None:
    """Print the answer, the entries, and the command that changes the answer."""
    decision = found.decision
    output.line("answer", _answer(found))
    output.table(
        "entries", ("deciding", "permission", "principal", "host", "operation", "pattern", "name"), _rows(found)
    )
    if not decision.allowed:
        output.line("change" if decision.entry else "add", _remedy(found, bootstrap))
    hosts = sorted({entry.host for entry in found.about if entry.host != WILDCARD})
    if hosts and not found.question.host:
        output.line("hosts", f"Without --host, entries for single hosts do not count: {', '.join(hosts[:10])}.")
    output.line("unseen", _UNSEEN)
    output.close()


def _answer(found: Explanation) -> str:
    question, (allowed, entry, _, _) = found.question, found.decision
    what = f"{OPERATION_NAMES[question.operation]} on {question.resource}"
    where = f" from {question.host}" if question.host else ""
    if entry is None:
        others = "no entry matches" if not found.about else "no matching entry allows it"
        return f"{question.principal} may not {what}{where}: {others}."
    verb = "may" if allowed else "may not"
    return f"{question.principal} {verb} {what}{where}: {_describe_entry(entry)}."


def _describe_entry(entry: AccessControlEntryRecord) -> str:
    """Return the deciding entry as text."""
    verb = "denies" if entry.permission_type == PermissionType.DENY else "allows"
    pattern = "names that begin with " if entry.pattern_type == PatternType.PREFIXED else ""
    kind, host = RESOURCE_TYPE_NAMES[ResourceType(entry.resource_type)], "any host"
    if entry.host != WILDCARD:
        host = entry.host
    operation = OPERATION_NAMES[AclOperation(entry.operation)]
    return f"an entry {verb} {entry.principal} {operation} on {kind} {pattern}{entry.resource_name} from {host}"


def _rows(found: Explanation) -> list[tuple[object, ...]]:
    deciding = found.decision.entry
    rows: list[tuple[object, ...]] = [
        (
            deciding is not None and _same(entry, deciding),
            _name(PermissionType, entry.permission_type),
            entry.principal,
            entry.host,
            _name(AclOperation, entry.operation),
            _name(PatternType, entry.pattern_type),
            entry.resource_name,
        )
        for entry in found.about
    ]
    return sorted(rows, key=lambda row: (not row[0], row[1] != "DENY", *map(str, row[2:])))


def _same(entry: AccessControlEntryRecord, deciding: AccessControlEntryRecord) -> bool:
    alike = entry._replace(id=b"", host=deciding.host) == deciding
    return alike and (entry.host == deciding.host or ":" in entry.host)


def _name(kind: type[PermissionType | AclOperation | PatternType], code: int) -> str:
    return kind(code).name if code in kind._value2member_map_ else str(code)


def _remedy(found: Explanation, bootstrap: str) -> str:
    question, entry = found.question, found.decision.entry
    words = ["kafka-acls", "--bootstrap-server", bootstrap]
    if entry is None:
        words += ["--add", "--allow-principal", question.principal]
        words += ["--operation", OPERATION_NAMES[question.operation], *_resource(question.resource_type, question.name)]
        return f"To allow it: {shell_line(words)}"
    words += ["--remove", "--deny-principal", entry.principal, "--deny-host", entry.host]
    words += ["--operation", OPERATION_NAMES[AclOperation(entry.operation)]]
    words += _resource(ResourceType(entry.resource_type), entry.resource_name)
    if entry.pattern_type == PatternType.PREFIXED:
        words += ["--resource-pattern-type", "prefixed"]
    return f"A DENY overrides every ALLOW. To remove it: {shell_line(words)}"


def _resource(kind: ResourceType, name: str) -> list[str]:
    return ["--cluster"] if kind is ResourceType.CLUSTER else [_OPTIONS[kind], name]
