"""Import of modules that a start does not need, after it: a module in each turn. shell

A request that arrives earlier imports the modules of its API itself. Nothing is imported later than a second after the
start, so an upgrade of the package does not mix two versions in a running broker.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Final

from ottla.broker.api.table import TABLE
from ottla.broker.costs import FIRST_USE_US
from ottla.broker.turns import Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.requests.library import SHARED, import_module_of_library

_FIRST: Final = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID)
"""The first requests of clients, in their order. The rest is in the order of the table."""
_SHARED: Final = (
    "ottla.protocol.walker",
    "ottla.protocol.requests.writer",
    "ottla.broker.api.reply",
    "importlib.resources",
)
"""Modules that all requests need, each by itself because the first request would wait for all of them."""
_OTHERS: Final = (
    "ottla.broker.group.consumer.coordinator",
    "ottla.broker.log.cleaning.log_cleaner",
)
"""Modules that functions of a running broker import."""


async def import_rest(turns: Turns) -> None:
    """Import the handlers and messages of all APIs. The sockets are read before each of them."""
    for import_next in _imports():
        turns.charge(FIRST_USE_US)
        await turns.pause()
        import_next()


def import_all() -> None:
    """Import all modules of a running broker at once, before functions of them are replaced or their calls counted."""
    for import_next in _imports():
        import_next()


def _imports() -> Iterator[Callable[[], object]]:
    for name in _SHARED:
        yield partial(import_module, name)
    for name in SHARED:
        yield partial(import_module_of_library, name)
    for api in sorted(TABLE.values(), key=lambda api: _FIRST.index(api.key) if api.key in _FIRST else len(_FIRST)):
        yield api.import_handler
        yield partial(codec.load_messages, api.key)
    for name in _OTHERS:
        yield partial(import_module, name)
