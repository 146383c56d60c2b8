"""Import of modules that a start does not need, after it: a module in each turn. shell

A request that arrives earlier imports the modules of its API itself. Nothing is imported later than a second after the
start, so an upgrade of the package does not mix two versions in a running broker.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Final

from ottla.broker.api.context import Api
from ottla.broker.costs import FIRST_USE_US
from ottla.broker.turns import Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec

_FIRST: Final = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID)
"""The first requests of clients, in their order. The rest is in the order of the table."""
_OTHERS: Final = (
    "ottla.protocol.requests.writer",
    "ottla.protocol.walker",
    "ottla.broker.group.consumer.coordinator",
    "ottla.broker.log.cleaning.log_cleaner",
)
"""Modules that are imported within functions, for use in a running broker."""


async def import_rest(turns: Turns, table: Iterable[Api]) -> None:
    """Import the handlers and messages of all APIs. The sockets are read between any two of them."""
    for _ in _import_in_steps(table):
        turns.charge(FIRST_USE_US)
        await turns.pause()


def _import_in_steps(table: Iterable[Api]) -> Iterator[None]:
    for api in sorted(table, key=lambda api: _FIRST.index(api.key) if api.key in _FIRST else len(_FIRST)):
        api.import_handler()
        yield
        codec.load_messages(api.key)
        yield
    for name in _OTHERS:
        import_module(name)
        yield
