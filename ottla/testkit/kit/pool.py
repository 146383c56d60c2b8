"""The brokers of a test session, one for each set of settings. free"""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from shutil import rmtree

from ottla.testkit.kit.broker import Broker
from ottla.testkit.kit.process import BrokerProcess
from ottla.testkit.releases import has_transaction_version

TRANSACTION_VERSION = "transaction.version"
GROUP_PROTOCOLS = "group.coordinator.rebalance.protocols"


class BrokerPool:
    """Brokers by their settings. `pool(transaction_version=1, properties={...})` starts a broker or reuses one.

    `brokers=3` gives a process of three brokers. `as_version="2.8"` gives a broker with the API versions of that
    release, and `transaction.version` 0 before 4.0.
    """

    def __init__(self, directory: Path, keep: bool = False, port: int = 0) -> None:
        """`port` is the port of the broker with default settings; 0 chooses a free port."""
        self._directory = directory
        self._keep = keep
        self._port = port
        self._numbers = count()
        self._brokers: dict[tuple[int, str | None, tuple[tuple[str, str], ...]], Broker] = {}

    def __call__(
        self,
        *,
        transaction_version: int | None = None,
        properties: Mapping[str, object] | None = None,
        as_version: str | None = None,
        brokers: int = 1,
    ) -> Broker:
        """Return the running broker. Raises BrokerFailed, with its log, if it cannot start."""
        settings = {name: setting_text(value) for name, value in (properties or {}).items()}
        if transaction_version is not None:
            settings[TRANSACTION_VERSION] = str(transaction_version)
        if as_version is not None and not has_transaction_version(as_version):
            settings.setdefault(TRANSACTION_VERSION, "0")
            settings.setdefault(GROUP_PROTOCOLS, "classic")  # the consumer protocol came with the same release, 4.0
        key = brokers, as_version, tuple(sorted(settings.items()))
        if key not in self._brokers:
            port = 0 if settings or as_version or brokers > 1 else self._port
            directory = self._directory / f"broker-{next(self._numbers)}"  # not that of a failed start
            broker = Broker(process=BrokerProcess(directory, settings, as_version, port, brokers))
            assert broker.process is not None
            broker.process.start()
            self._brokers[key] = broker
        return self._brokers[key]

    def close(self) -> None:
        """Stop all brokers and delete their directories, except those kept for failed tests."""
        for broker in self._brokers.values():
            broker.close()
            assert broker.process is not None
            broker.process.stop()
            if not self._keep:
                rmtree(broker.process.data_dir, ignore_errors=True)


def setting_text(value: object) -> str:
    """Return a value as in server.properties."""
    return str(value).lower() if isinstance(value, bool) else str(value)
