"""Renders docs/protocol-support.md from the table of served APIs: `python -m ottla.testkit.protocol_support`. free"""

import sys

from ottla.broker.api.table import TABLE, advertised
from ottla.protocol import codec

_HEAD = """# Protocol support

`make docs` makes this page from `ottla/broker/api/table.py`. *Served* are the versions that Ottla answers, *advertised*
those that ApiVersions lists, and *Kafka 4.3.1* those of its schemas. The head of each file in `ottla/broker/api/` says
what its handler does in each version.

| API | key | served | advertised | Kafka 4.3.1 |
|---|---|---|---|---|
"""

_TAIL = """
Version 2 of ListTransactions, which has patterns, needs `google-re2`; where that is not installed, versions 0 and 1
are served and advertised. It has no wheels for musl (Alpine), so there `pip install --no-deps` leaves it out.

Every other API closes the connection, as Kafka does for an API that a listener does not serve; ApiVersions in a version
that is too new is answered in version 0 with UNSUPPORTED_VERSION (KIP-511).
"""


def render() -> str:
    """The page."""
    listed = {key: (low, high) for key, low, high in advertised()}
    rows = []
    for key, api in sorted(TABLE.items()):
        advertised_range = "{}-{}".format(*listed[key])
        known = "{}-{}".format(*codec.schema_versions(key))
        rows.append(f"| {api.title} | {key} | {api.min_version}-{api.max_version} | {advertised_range} | {known} |\n")
    return _HEAD + "".join(rows) + _TAIL


if __name__ == "__main__":
    sys.stdout.write(render())
