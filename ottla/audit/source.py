"""Limits of an audit of a cluster, in comparison with one of its directories. pure"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.audit.audited import ALL, Limit, Source
from ottla.audit.checks.hanging import Present
from ottla.audit.listed import Listed
from ottla.scan.listing import COORDINATORS

if TYPE_CHECKING:
    from ottla.audit.request import Request


def source_of(
    request: "Request",
    listed: Sequence[Listed],
    chosen: Collection[int],
    present: Present | None,
    compared: Sequence[Limit],
) -> Source:
    """Return the limits of an audit; `chosen` are the partitions that were read, as indexes in `listed`.

    `compared`: the limits of the check `replicas`.
    """
    if request.address is None:
        return Source(reduced=tuple(compared))
    reduced = [*_list_reductions(listed, [listed[index] for index in chosen])]
    reduced += [Limit("hanging", gap) for gap in present.doubts] if present is not None else []
    reduced += compared
    return Source(
        tuple(_keep(request, _list_omissions(listed))),
        tuple(_keep(request, reduced)),
        request.now_ms,
        properties=request.address.properties,
    )


def _keep(request: "Request", limits: Iterable[Limit]) -> Iterator[Limit]:
    return (limit for limit in limits if limit.check == ALL or limit.check in request.checks)


def _list_omissions(listed: Sequence[Listed]) -> Iterator[Limit]:
    yield Limit("index", "no files are read over the wire")
    yield from (Limit(ALL, f"{one.log.name}: {one.unread}") for one in listed if one.unread)


def _list_reductions(listed: Sequence[Listed], read: Sequence[Listed]) -> Iterator[Limit]:
    if not any(one.log.topic == COORDINATORS and not one.unread for one in listed):
        yield Limit("torn", f"topic {COORDINATORS} is missing or may not be read: coordinators know only the present")
    yield Limit("replicas", "brokers do not show their checkpoints: only lost records that a group has read are found")
    for one in read:
        if one.cleaned_below is None:
            yield Limit("gaps", f"{one.log.name}: compacted and lost offsets look the same")
