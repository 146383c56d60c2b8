"""Settings from several sources to one checked configuration. pure"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from ottla.broker.config.broker import BROKER_OPTIONS, STANDARD_AUTHORIZER, Config
from ottla.broker.config.listeners import (
    DEFAULT_PROTOCOL_MAP,
    LISTENER_RANGE,
    WITH_LOGIN,
    broker_listeners,
    listener_names,
    parse_connections_per_ip,
    parse_listeners,
    parse_protocol_map,
)
from ottla.broker.config.option import HIDDEN, ConfigError, Option, Origin, Setting, value_text
from ottla.broker.config.principal_rules import parse_principal_rules
from ottla.broker.config.sasl import parse_jaas_of, sasl_option, sasl_settings
from ottla.broker.config.scram import parse_scram_users
from ottla.broker.config.sources import FLAG
from ottla.broker.config.super_users import parse_super_users
from ottla.broker.config.tls import TLS_OPTIONS, of_listener
from ottla.broker.config.unknown import known_to_kafka, may_be_secret, suggestion

_CLUSTER_ID: Final = re.compile("[A-Za-z0-9_+/=-]{0,64}")
_BY_KEY: Final = {key: option for option in BROKER_OPTIONS for key in (option.key, *option.also)}


class Loaded(NamedTuple):
    """A configuration, and the given keys that it does not have."""

    config: Config
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]

    def notes(self) -> list[str]:
        """Return the log lines about those keys at start: one for keys that Kafka knows, one for unknown keys."""
        notes = []
        if self.ignored:
            notes.append(f"Known to Kafka, ignored by Ottla: {', '.join(self.ignored)}")
        if self.unknown:
            listed = [f"{key} ({meant})" if (meant := suggestion(key)) else key for key in self.unknown]
            notes.append(f"Unknown options, ignored: {', '.join(listed)}")
        return notes


def load_config(*sources: Sequence[Setting], jaas_file: str = "") -> Loaded:
    """Merge the sources into a configuration; the first takes precedence. ConfigError for an invalid value, and for a
    flag that names no option. Unknown keys of a file or an environment are allowed: others may use these too.

    `jaas_file` is the text of the file with the users of listeners that have no `sasl.jaas.config`.

    The first source that names an option, under any of its keys, decides. Within one source the option's own key
    takes precedence over its others (`log.roll.ms` over `log.roll.hours`), as in Kafka. The last of equal keys counts.
    """
    values: dict[str, Any] = {"listener_options": _of_listeners(sources), "jaas_file": jaas_file}
    chosen: dict[str, Setting] = {}
    strange: dict[str, Setting] = {}
    for source in sources:
        given = {setting.key: setting for setting in source}
        strange |= {key: setting for key, setting in given.items() if _option(key) is None and key not in strange}
        _refuse_unknown_flags(given.values())
        for option in BROKER_OPTIONS:
            settings = [given[key] for key in (option.key, *option.also) if key in given]
            if settings and option.key not in chosen:
                chosen[option.key] = settings[0]
                values[option.attribute] = _parse(option, settings[0])
    origins = {key: setting.origin for key, setting in chosen.items()}
    config = _check(Config(**values, origins=origins), chosen)
    ignored = {key for key in strange if known_to_kafka(key)}
    return Loaded(config, tuple(sorted(ignored)), tuple(sorted(strange.keys() - ignored)))


def _of_listeners(sources: Sequence[Sequence[Setting]]) -> dict[str, dict[str, str]]:
    """Return the options of single listeners; the first source takes precedence."""
    found: dict[str, dict[str, str]] = {}
    for source in reversed(sources):
        for setting in source:
            named, option = of_listener(setting.key), _option(setting.key)
            if named is not None and option is not None:
                found.setdefault(named[0], {})[named[1]] = str(_parse(option, setting))
    return found


def _option(key: str) -> Option | None:
    """Return the option of a key, of the broker or of one listener."""
    named = of_listener(key)
    return _BY_KEY.get(key) if named is None else TLS_OPTIONS.get(named[1]) or sasl_option(named[1])


def _refuse_unknown_flags(settings: Iterable[Setting]) -> None:
    for setting in settings:
        if setting.origin.source == FLAG and setting.key not in _BY_KEY and not known_to_kafka(setting.key):
            meant = suggestion(setting.key) or "`ottla configs` lists them"
            shown = HIDDEN if may_be_secret(setting.key) else setting.text
            raise ConfigError(f"{setting.origin.place} {setting.key}={shown}: there is no such option; {meant}")


def _parse(option: Option, setting: Setting) -> Any:
    try:
        if option.attribute in ("listeners", "advertised_listeners"):
            return parse_listeners(setting.text)
        if option.attribute == "ssl_principal_mapping_rules":
            parse_principal_rules(setting.text)
        named = of_listener(setting.key)
        if named is not None and option.attribute == "sasl_jaas_config":
            parse_jaas_of(named[1], setting.text)
        return option.parse(setting.text, option.also.get(setting.key, 1))
    except ValueError as error:
        raise _impossible(setting, str(error)) from None


def _impossible(setting: Setting, must_be: str) -> ConfigError:
    option = _option(setting.key)
    shown = HIDDEN if option is not None and option.is_secret else " ".join(setting.text.split())
    return ConfigError(f"{setting.key}={shown} ({setting.origin}): must be {must_be}")


def _check(config: Config, chosen: dict[str, Setting]) -> Config:
    """Check the values together, and return the configuration without the controller's listeners."""

    def refuse(key: str, must_be: str) -> ConfigError:
        option = _BY_KEY[key]
        default = Setting(key, value_text(option.default), Origin("default"))
        return _impossible(chosen.get(key, default), must_be)

    if "broker" not in (role.strip() for role in config.process_roles.split(",")):
        raise refuse("process.roles", "broker, or broker,controller")
    if not _CLUSTER_ID.fullmatch(config.cluster_id):
        raise refuse("cluster.id", "up to 64 letters, digits, - and _ (or +, / and =)")
    try:
        parse_scram_users(config.add_scram)
    except ValueError as error:
        raise refuse("add.scram", str(error)) from None
    if not config.log_dirs or "," in config.log_dirs:
        raise refuse("log.dirs", "one directory")
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise refuse(
            "group.min.session.timeout.ms",
            f"at most {config.group_max_session_timeout_ms} (group.max.session.timeout.ms)",
        )
    if config.authorizer_class_name not in ("", STANDARD_AUTHORIZER):
        raise refuse("authorizer.class.name", f"{STANDARD_AUTHORIZER}, or empty")
    try:
        parse_super_users(config.super_users)
    except ValueError as error:
        raise refuse("super.users", str(error)) from None
    try:
        parse_connections_per_ip(config.max_connections_per_ip_overrides)
    except ValueError as error:
        raise refuse("max.connections.per.ip.overrides", str(error)) from None
    return _check_listeners(config, refuse)


def _check_listeners(config: Config, refuse: Callable[[str, str], ConfigError]) -> Config:
    """Check the listeners, and return the configuration without the controller's listeners in both lists."""
    try:
        protocols = parse_protocol_map(config.listener_security_protocol_map or DEFAULT_PROTOCOL_MAP)
    except ValueError as error:
        raise refuse("listener.security.protocol.map", str(error)) from None
    try:
        listeners = broker_listeners(config.listeners, config.controller_listener_names, protocols)
    except ValueError as error:
        raise refuse("listeners", str(error)) from None
    for listener in listeners:
        if protocols[listener.name] in WITH_LOGIN:
            try:
                sasl_settings(config, listener.name)
            except ValueError as error:
                raise ConfigError(str(error)) from None
    names = [listener.name for listener in listeners]
    controllers = listener_names(config.controller_listener_names)
    advertised = tuple(listener for listener in config.advertised_listeners if listener.name not in controllers)
    if any(listener.name not in names for listener in advertised):
        raise refuse("advertised.listeners", f"listeners named in `listeners` ({', '.join(sorted(names))})")
    if config.advertised_listeners and not advertised:
        raise refuse("advertised.listeners", "at least one listener besides those of the controller")
    if any(listener.host in ("0.0.0.0", "::") for listener in advertised or listeners):
        raise refuse("advertised.listeners", f"{LISTENER_RANGE}, with a host that clients can reach")
    names = [listener.name for listener in advertised or listeners]
    between_brokers = listener_names(config.inter_broker_listener_name)
    if not between_brokers.issubset(names):
        raise refuse("inter.broker.listener.name", f"an advertised listener ({', '.join(sorted(names))})")
    return dataclasses.replace(config, listeners=listeners, advertised_listeners=advertised)
