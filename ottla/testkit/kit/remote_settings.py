"""Settings of a running broker for one test: what can change while the broker runs, and what it has already. shell"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.printable import printable
from ottla.protocol.api_keys import ApiKey
from ottla.testkit.kit.pool import TRANSACTION_VERSION
from ottla.testkit.kit.process import NeedsOwnBroker
from ottla.testkit.kit.wire import Wire, check, transaction_version

__tracebackhide__ = True  # pytest then shows the line of the test and the message
K: Final = ApiKey
_BROKER: Final = 4
_ALL_BROKERS: Final = ""
_SET, _DELETE = 0, 1
_OF_ALL_BROKERS: Final = 3
_UPGRADE, _SAFE_DOWNGRADE = 1, 2


class Config(NamedTuple):
    """A config as DescribeConfigs shows it."""

    value: str | None
    is_read_only: bool
    is_of_all_brokers: bool


class RemoteSettings:
    """Settings of a running broker. `apply` changes them for a test, and `restore` puts the former ones back.

    Options change as the default of all brokers of the cluster, which is what `kafka-configs.sh --entity-default`
    changes.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._former_configs: dict[str, str | None] = {}
        self._former_version: int | None = None

    def apply(self, properties: Mapping[str, str], version: int | None) -> None:
        """Change these options and `transaction.version`.

        KafkaError if the broker refuses, ValueError for an option that it does not list. NeedsOwnBroker, before any
        change, if an option has another value and cannot change while the broker runs.
        """
        configs = self.read_configs(list(properties))
        if unknown := [name for name in properties if name not in configs]:
            raise ValueError(
                f"{self._wire.bootstrap} lists no option {', '.join(unknown)}: `ottla configs` has the names"
            )
        changed = {name: value for name, value in properties.items() if configs[name].value != value}
        if fixed := [name for name in changed if not _can_change(configs[name])]:
            raise NeedsOwnBroker(
                f"{self._wire.bootstrap} cannot change "
                + ", ".join(f"{name} from {printable(str(configs[name].value))} to {changed[name]}" for name in fixed)
                + " while it runs"
            )
        try:
            self._set_version(version)
            self._set_configs(changed, configs)
        except BaseException:
            self.restore()
            raise

    def restore(self) -> None:
        """Put the former settings back."""
        configs, self._former_configs = self._former_configs, {}
        version, self._former_version = self._former_version, None
        try:
            self._alter(configs)
        finally:
            if version is not None:
                self._update_version(version, transaction_version(self._wire))

    def _set_configs(self, changed: Mapping[str, str], configs: Mapping[str, Config]) -> None:
        self._alter(changed)
        self._former_configs = {
            name: configs[name].value if configs[name].is_of_all_brokers else None for name in changed
        }

    def _set_version(self, version: int | None) -> None:
        current = transaction_version(self._wire)
        if version is not None and version != current:
            self._update_version(version, current)
            self._former_version = current

    def _update_version(self, version: int, current: int) -> None:
        kind = _UPGRADE if version > current else _SAFE_DOWNGRADE
        update = {"feature": TRANSACTION_VERSION, "max_version_level": version, "upgrade_type": kind}
        reply = self._wire.ask(K.UPDATE_FEATURES, 1, timeout_ms=60_000, feature_updates=[update], validate_only=False)
        check(reply.error_code, f"set {TRANSACTION_VERSION} to {version}", reply.error_message)

    def read_configs(self, names: list[str]) -> dict[str, Config]:
        """Return these options of the broker, without unknown ones."""
        if not names:
            return {}
        found = self._wire.ask(K.METADATA, 5, topics=[], allow_auto_topic_creation=False).brokers
        address = None if len(found) == 1 else f"{found[0].host}:{found[0].port}"
        resource = {"resource_type": _BROKER, "resource_name": str(found[0].node_id), "configuration_keys": names}
        fields: dict[str, Any] = {"resources": [resource], "include_synonyms": False}
        (reply,) = self._wire.ask(K.DESCRIBE_CONFIGS, 1, address, **fields).results
        check(reply.error_code, "describe the settings of the broker", reply.error_message)
        return {
            row.name: Config(row.value, row.read_only, row.config_source == _OF_ALL_BROKERS) for row in reply.configs
        }

    def _alter(self, values: Mapping[str, str | None]) -> None:
        """Set options, or remove those without a value."""
        if not values:
            return
        rows = [
            {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
            for name, value in values.items()
        ]
        resource = {"resource_type": _BROKER, "resource_name": _ALL_BROKERS, "configs": rows}
        (reply,) = self._wire.ask(K.INCREMENTAL_ALTER_CONFIGS, 0, resources=[resource], validate_only=False).responses
        check(reply.error_code, f"set {', '.join(values)}", reply.error_message)


def _can_change(config: Config) -> bool:
    """Return whether a test can change an option and put it back. The value of a secret is not known."""
    return not config.is_read_only and not (config.is_of_all_brokers and config.value is None)
