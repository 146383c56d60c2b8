"""What a request names, each thing once: see docs/decisions/named-twice.md. free"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from ottla.broker.costs import ROW_US
from ottla.broker.turns import Turns

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Named(NamedTuple, Generic[K, R]):
    """The first row of each name, in the order of the request, and the names of more than one row."""

    first: dict[K, R]
    twice: set[K]


async def named(turns: Turns, rows: Iterable[R], name_of: Callable[[R], K]) -> Named[K, R]:
    """Look through the rows of a request, in shares: there may be 16,384 of them."""
    first: dict[K, R] = {}
    twice: set[K] = set()
    for row in rows:
        name = name_of(row)
        if name in first:
            twice.add(name)
        else:
            first[name] = row
        turns.charge(ROW_US)
        await turns.share()
    return Named(first, twice)


async def last_named(turns: Turns, rows: Iterable[R], name_of: Callable[[R], K]) -> dict[K, R]:
    """The last row of each name, in the place of the first one; in shares."""
    last: dict[K, R] = {}
    for row in rows:
        last[name_of(row)] = row
        turns.charge(ROW_US)
        await turns.share()
    return last
