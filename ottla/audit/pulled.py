"""The time of a copy that `ottla pull` has made, by its mark `pull.json`. shell

The copy of the coordinators' log ends before those of data, and other partitions may end before both. So an audit of
the copy takes place at the earliest of these times: nothing later is proved by a record that is not there.
"""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.audit.checks.hanging import SETTLED_MS
from ottla.audit.topics import METADATA
from ottla.protocol.checkpoints import PULLED
from ottla.scan import storage
from ottla.scan.listing import COORDINATORS, UnreadableDirectory

if TYPE_CHECKING:
    from ottla.audit.listed import Listed
    from ottla.audit.request import Request


def at_time_of_copy(request: "Request", listed: Iterable["Listed"]) -> "Request":
    """Return the request at the time of the copy that it audits; unchanged for other directories.

    Raises UnreadableDirectory for a mark that was changed.
    """
    if request.address is not None:
        return request
    served = {one.directory for one in listed if one.log.topic == METADATA}  # a broker has written to the copy since
    found = [_read_time(directory) for directory in request.directories if directory not in served]
    times = [time_ms for time_ms in found if time_ms is not None]
    if not times:
        return request
    copied_ms = min(times)  # 0: a partition was never copied to its end
    now_ms = min(request.now_ms, copied_ms or request.now_ms)
    return request._replace(now_ms=now_ms, decided_until_ms=min(now_ms, copied_ms) - SETTLED_MS)


def _read_time(directory: str) -> int | None:
    """Return the time up to which a copy has all decisions and markers; None if it is no copy, or has no decisions."""
    path = storage.join(directory, PULLED)
    content = storage.read_if_there(path)
    if content is None:
        return None
    try:
        topics = json.loads(content)["topics"]
        copied = [int(one["copied_ms"]) for topic in topics.values() for one in topic["partitions"].values()]
        return min(copied, default=None) if COORDINATORS in topics else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as broken:
        raise UnreadableDirectory(f"{storage.hide_secrets(path)} was changed ({broken}): pull it again") from None
