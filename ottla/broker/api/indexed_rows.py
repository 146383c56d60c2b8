"""Rows of a request, one for each name. See docs/decisions/named-twice.md. free"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from ottla.broker.costs import ROW_US
from ottla.broker.turns import Turns

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class IndexedRows(NamedTuple, Generic[K, R]):
    """The first row of each name, in the order of the request, and the names of more than one row."""

    first: dict[K, R]
    twice: set[K]


async def index_rows(turns: Turns, rows: Iterable[R], name_of: Callable[[R], K]) -> IndexedRows[K, R]:
    """Index the rows of a request by name. Works in turns, because there may be 16,384 rows."""
    first: dict[K, R] = {}
    twice: set[K] = set()
    for row in rows:
        name = name_of(row)
        if name in first:
            twice.add(name)
        else:
            first[name] = row
        await turns.spend(ROW_US)
    return IndexedRows(first, twice)


async def index_last_rows(turns: Turns, rows: Iterable[R], name_of: Callable[[R], K]) -> dict[K, R]:
    """Return the last row of each name, in the order of the first ones. Works in turns."""
    last: dict[K, R] = {}
    for row in rows:
        last[name_of(row)] = row
        await turns.spend(ROW_US)
    return last
