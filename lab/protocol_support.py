"""Renders docs/protocol-support.md from the table of served APIs: `python -m lab.protocol_support`. free"""

import sys
from collections.abc import Iterable
from typing import Final

from ottla.broker.api.table import TABLE, list_versions
from ottla.broker.security.authorizer import Need
from ottla.protocol.errors import NO_ERROR
from ottla.protocol.requests import codec

_HEAD = """# Protocol support

`make docs` makes this page from `ottla/broker/api/table.py`. *Served* are the versions that Ottla answers, *advertised*
those that ApiVersions lists, and *Kafka 4.4.0* those of its schemas. Kafka 4.3.1 has the same but ApiVersions 5,
DeleteGroups 3 and TxnOffsetCommit 6. The docstring of each file in `ottla/broker/api/`
says what its handler does in each version.

| API | key | served | advertised | Kafka 4.4.0 |
|---|---|---|---|---|
"""

_TAIL = """
With `unstable.api.versions.enable=true`, InitProducerId 6 is served and advertised too, as by Apache Kafka 4.3.1
([two-phase commit](run.md#two-phase-commit)).

Version 2 of ListTransactions, which has patterns, needs `google-re2`; where that is not installed, versions 0 and 1
are served and advertised. It has no wheels for musl (Alpine), so there `pip install --no-deps` leaves it out.

Every other API closes the connection, as Kafka does for an API that a listener does not serve; ApiVersions in a version
that is too new is answered in version 0 with UNSUPPORTED_VERSION (KIP-511). GetTelemetrySubscriptions and PushTelemetry
are among them: a Kafka without a plugin that receives clients' metrics does not list these APIs either, so clients do
not send them ([Kafka answers](decisions/differences.md) a client that sends them all the same).
"""


_RELEASES: Final = """
## Kafka 4.3.1 and 4.4.0

Ottla answers as 4.3.1, and in these versions, which only 4.4.0 has, as 4.4.0:

| API | version | new |
|---|---|---|
| ApiVersions | 5 | the cluster and node that the client means; others answer REBOOTSTRAP_REQUIRED (KIP-1242) |
| DeleteGroups | 3 | a message for each group; always null in Ottla |
| TxnOffsetCommit | 6 | topic ids in place of names, and GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH (KIP-1319) |

4.4.0 also has StreamsGroupHeartbeat 1, StreamsGroupDescribe 1, StreamsGroupTopologyDescriptionUpdate and
UnregisterController, which Ottla does not serve. In versions that both have, 4.4.0 differs from 4.3.1 in this, as the
scripts of `tests/conformance` show:

- A member of the consumer protocol that names another assignor than before, or names one when it joins, begins a group
  epoch.
- When the last member of a consumer group leaves, the epoch of its target assignment becomes that of the group.
- A classic member whose subscription cannot be read is refused by a group of the consumer protocol with
  INCONSISTENT_GROUP_PROTOCOL, not with UNKNOWN_SERVER_ERROR.
- TxnOffsetCommit stores the id of the topic in every version.
- The message of a group's config out of its range names the range.
"""

_RIGHTS: Final = """
## What each API asks an authorizer

The rights are listed in the order in which Ottla checks them, with the names of `kafka-acls`. If a right is missing,
the reply, or its row about the resource, has the error TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED, which is also InitProducerId's without an id. A
missing right in brackets causes no error: the reply leaves the resource out, or the next right is enough. Without
Describe of the cluster, Metadata and DescribeCluster return no operations. Ottla checks rights where Kafka does
([who asks for rights](decisions/authorization.md)).

| API | rights |
|---|---|
"""


def _spoken(name: str) -> str:
    """Return the name of an enum member as Kafka's tools write it."""
    return name.title().replace("_", "")


def _rights(needs: Iterable[Need]) -> str:
    rights = []
    for need in needs:
        if need.error is not NO_ERROR:  # a right that only decides which operations a reply lists is not needed
            right = f"{_spoken(need.operation.name)} {_spoken(need.resource_type.name)}"
            rights.append(f"({right})" if need.is_quiet else right)
    return ", ".join(dict.fromkeys(rights)) or "none"


def render() -> str:
    """Return the page."""
    listed = {key: (low, high) for key, low, high in list_versions()}
    rows = []
    for key, api in sorted(TABLE.items()):
        advertised_range = "{}-{}".format(*listed[key])
        known = "{}-{}".format(*codec.schema_versions(key))
        rows.append(f"| {api.title} | {key} | {api.min_version}-{api.max_version} | {advertised_range} | {known} |\n")
    rights = [f"| {api.title} | {_rights(api.needs)} |\n" for _, api in sorted(TABLE.items())]
    return _HEAD + "".join(rows) + _TAIL + _RELEASES + _RIGHTS + "".join(rights)


if __name__ == "__main__":
    sys.stdout.write(render())
