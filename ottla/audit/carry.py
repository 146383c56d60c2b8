"""Carry files: the facts and the producers' states below an offset, for the next audit (`--carry`). pure

The next audit reads the records from there on, and its findings are those of an audit of the whole log. Facts refer to
decisions of the coordinators by their records, because the next audit numbers the decisions anew.
"""

import hashlib
import json
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ottla.audit.checks import across, history, once, shape, torn
from ottla.audit.checks.across import Ends, Marker
from ottla.audit.checks.finding import Finding
from ottla.audit.checks.shape import Packed
from ottla.audit.checks.stale import Idle
from ottla.audit.checks.torn import Matched
from ottla.audit.runner import AuditFailed
from ottla.audit.tasks import MOST_ANOMALIES, MOST_GAPS, RangeFacts
from ottla.protocol.values import TopicPartition
from ottla.scan import events
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import Damage
from ottla.scan.states import States

VERSION: Final = 1
_MAGIC: Final = b"ottla-audit-carry"
_HEAD_BYTES: Final = 128
_LARGEST_BYTES: Final = 4 * 1024**3


class CarryRefused(AuditFailed):
    """A carry file that does not fit what is audited; the text is one line."""


class Carried(NamedTuple):
    """A partition below `end_offset`. `topic_id`: empty if unknown. `entering`: the states there.

    `records`: (coordinator partition, offset) of the decision of each row of `facts.matched.carried_out`. `markers`:
    the markers that were looked up, without the partition's index.
    """

    directory: str
    place: TopicPartition
    topic_id: bytes
    end_offset: int
    entering: States
    facts: RangeFacts
    records: Longs
    markers: tuple[Marker, ...] = ()

    @property
    def name(self) -> str:
        return "{}-{}".format(*self.place)


class Carry(NamedTuple):
    """A carry file. `cluster_id`: empty if unknown. `settings`: options of the audit that decide its facts."""

    path: str
    cluster_id: str = ""
    settings: str = ""
    partitions: tuple[Carried, ...] = ()


_TYPES: Final = {
    one.__name__: one for one in (Carry, Carried, RangeFacts, Matched, Ends, Packed, Idle, Damage, Finding, Marker)
}


def encode(carry: Carry) -> bytes:
    """Return the bytes of a carry file: a line with the version and the checksum, and compressed JSON."""
    body = zlib.compress(json.dumps(_to_json(carry)).encode(), 3)
    return b"%s %d %s\n" % (_MAGIC, VERSION, hashlib.sha256(body).hexdigest().encode()) + body


def decode(path: str, content: bytes) -> Carry:
    """Return the content of the carry file at `path`. Raises CarryRefused."""
    remedy = "remove it, and the audit reads everything"
    words = content[:_HEAD_BYTES].partition(b"\n")[0].split(b" ")
    if len(words) != 3 or words[0] != _MAGIC:
        raise CarryRefused(f"{path} is not a file of --carry: name another one")
    if words[1] != b"%d" % VERSION:
        version = words[1].decode(errors="replace")
        raise CarryRefused(f"{path} has version {version} of --carry files, and {VERSION} is read here; {remedy}")
    body = content[content.index(b"\n") + 1 :]
    if hashlib.sha256(body).hexdigest().encode() != words[2]:
        raise CarryRefused(f"{path} is damaged, by its checksum; {remedy}")
    try:
        unpacked = zlib.decompressobj().decompress(body, _LARGEST_BYTES)
        found = _from_json(json.loads(unpacked))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error):
        found = None
    if not (
        isinstance(found, Carry)
        and isinstance(found.partitions, tuple)
        and all(isinstance(one, Carried) for one in found.partitions)
    ):
        raise CarryRefused(f"{path} is damaged; {remedy}")
    return found._replace(path=path)


def _to_json(value: Any) -> Any:
    """Return a value as JSON; lists and numbers are themselves, everything else is [kind, parts]."""
    if isinstance(value, np.ndarray):
        packed = zlib.compress(np.ascontiguousarray(value, dtype=np.int64).tobytes(), 1)
        return ["array", *value.shape, b64encode(packed).decode()]
    if isinstance(value, States):
        return ["States", *map(_to_json, value)]
    if isinstance(value, bytes):
        return ["bytes", b64encode(value).decode()]
    if isinstance(value, Counter):
        return ["Counter", *([int(key), many] for key, many in value.items())]
    if isinstance(value, tuple):
        name = type(value).__name__
        return [name if name in _TYPES else "tuple", *map(_to_json, value)]
    return value.item() if isinstance(value, np.generic) else value


def _from_json(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *parts = value
    if kind == "array":
        *shape_of, packed = parts
        return np.frombuffer(zlib.decompress(b64decode(packed)), dtype=np.int64).reshape(shape_of).copy()
    if kind == "bytes":
        return b64decode(parts[0])
    if kind == "Counter":
        return Counter(dict(parts))
    if kind == "States":
        return States(*map(_from_json, parts))
    if kind == "tuple":
        return tuple(map(_from_json, parts))
    return _TYPES[kind](*map(_from_json, parts))


def join(parts: Sequence[RangeFacts], recent: int) -> RangeFacts:
    """Return the facts of consecutive ranges as those of one, without what the next audit sees again: a torn tail."""
    last = parts[-1]
    anomalies = np.concatenate([part.anomalies for part in parts])
    gaps = np.concatenate([part.gaps for part in parts])
    left_out: Counter[int] = Counter(anomalies[MOST_ANOMALIES:, events.ANOMALY_KIND].tolist())
    for part in parts:
        left_out.update(part.anomalies_left_out)
    newest = np.concatenate([part.recent for part in parts])
    return last._replace(
        totals=np.sum([part.totals for part in parts], axis=0),
        next_offset=max(part.next_offset for part in parts),
        first_batch_ms=next((part.first_batch_ms for part in parts if part.first_batch_ms >= 0), -1),
        latest_ms=max(part.latest_ms for part in parts),
        matched=_join_matches([part.matched for part in parts]),
        ends=across.pack([across.unpack(part.ends) for part in parts]),
        shared=once.combine([part.shared for part in parts]),
        anomalies=anomalies[:MOST_ANOMALIES],
        anomalies_left_out=left_out,
        gaps=gaps[:MOST_GAPS],
        gaps_left_out=sum(part.gaps_left_out for part in parts) + max(0, len(gaps) - MOST_GAPS),
        shape=shape.pack_shape(shape.merge(part.shape for part in parts)),
        idle=Idle(),
        recent=newest[max(0, len(newest) - recent) :],
        damage=tuple(one for part in parts for one in part.damage),
        torn_tails=(),
        findings=tuple(one for part in parts for one in part.findings),
        leaving=None,
    )


def _join_matches(parts: Sequence[Matched]) -> Matched:
    rows = np.concatenate([part.carried_out for part in parts])
    at, where = np.unique(rows[:, 0], return_inverse=True)
    many = np.bincount(where, rows[:, 1], len(at)).astype(np.int64)
    first = np.full(len(at), torn.NOWHERE, dtype=np.int64)
    np.minimum.at(first, where, rows[:, 2])
    first_ms = next((part.first_marker_ms for part in parts if part.first_marker_ms >= 0), -1)
    others = np.concatenate([part.others for part in parts])[: torn.MOST_MARKERS]
    count = sum(part.others_count for part in parts)
    return Matched(np.stack([at, many, first], axis=1), others, count, first_ms)


def name_decisions(matched: Matched, decisions: Longs) -> tuple[Matched, Longs]:
    """Return matches without the markers that `match_again` counts again, and the records of their decisions."""
    agreeing = [int(row[torn.DECISION]) for row in matched.others if torn.agrees(row, decisions)]
    rows = matched.carried_out.copy()
    np.subtract.at(rows[:, 1], np.searchsorted(rows[:, 0], agreeing), 1)
    rows = rows[rows[:, 1] > 0]
    records = decisions[rows[:, 0]][:, [history.COORDINATOR, history.OFFSET]]
    return matched._replace(carried_out=rows), records


def match_again(one: Carried, decisions: Longs, cleaned_below: int) -> RangeFacts:
    """Return the facts, matched with the decisions that are known now."""
    matched = one.facts.matched
    keys = decisions[:, history.COORDINATOR] << 48 | decisions[:, history.OFFSET]
    order = np.argsort(keys, kind="stable")
    wanted = one.records[:, 0] << 48 | one.records[:, 1]
    at = np.minimum(np.searchsorted(keys[order], wanted), max(len(keys) - 1, 0))
    is_known = keys[order][at] == wanted if len(keys) else np.zeros(len(wanted), dtype=bool)
    rows = matched.carried_out[is_known].copy()
    rows[:, 0] = order[at[is_known]] if len(keys) else 0
    matcher = torn.MarkerMatcher(decisions[:, : history.UPDATED_MS + 1], cleaned_below)
    matcher.restore(rows)
    markers = matched.others.copy()
    matcher.add(markers)
    again = matcher.result()
    is_new = (matched.others[:, torn.DECISION] < 0) & (markers[:, torn.DECISION] >= 0)
    unseen = matched.others_count - len(matched.others)
    return one.facts._replace(
        shared=_subtract_decisions(one.facts.shared, markers[is_new]),
        matched=again._replace(others_count=again.others_count + unseen, first_marker_ms=matched.first_marker_ms),
    )


def _subtract_decisions(shared: Longs, markers: Longs) -> Longs:
    """Return the counts of markers without a decision, less those whose decision is known by now."""
    ended = markers[markers[:, torn.FIRST_OFFSET] >= 0]
    keys = torn.keys(ended[:, torn.PRODUCER_ID], ended[:, torn.EPOCH]) << 1 | ended[:, torn.FATE]
    keys = keys[np.isin(keys, shared[:, 0])]
    left = once.combine([shared, np.stack([keys, np.full_like(keys, -1)], axis=1)])
    return left[left[:, 1] > 0]
