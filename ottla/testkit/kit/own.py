"""A broker that runs for the length of a block, for tests without pytest and for notebooks. free"""

import asyncio
from collections.abc import Mapping
from shutil import rmtree

from ottla.testkit.kit.broker import Broker
from ottla.testkit.kit.pool import BrokerPool
from ottla.testkit.kit.process import temporary_directory


class OwnBroker:
    """A context manager, `with OwnBroker() as broker:`. `async with` does not block the event loop."""

    def __init__(self, transaction_version: int | None, properties: Mapping[str, object] | None, brokers: int) -> None:
        self._settings = transaction_version, properties, brokers
        self._directory = temporary_directory()
        self._pool = BrokerPool(self._directory)

    def __enter__(self) -> Broker:
        """Return a broker that is ready. Raises BrokerFailed, with the broker's log."""
        version, properties, brokers = self._settings
        try:
            broker = self._pool(transaction_version=version, properties=properties, brokers=brokers)
        except BaseException:
            self._close()
            raise
        broker.begin()
        return broker

    def __exit__(self, *_: object) -> None:
        self._close()

    async def __aenter__(self) -> Broker:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._pool.close()
        rmtree(self._directory, ignore_errors=True)
