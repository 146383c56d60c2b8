"""Settings from flags, the environment and properties files to one checked configuration. pure"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from ottla.broker.config.broker import BROKER_OPTIONS, OPTION_OF_KEY, Config
from ottla.broker.config.consumer_groups import timeout_problem
from ottla.broker.config.listener_options import LISTENER_OPTIONS, listener_key, of_listener
from ottla.broker.config.listeners import (
    DEFAULT_PROTOCOL_MAP,
    LISTENER_RANGE,
    WITH_LOGIN,
    broker_listeners,
    listener_names,
    parse_protocol_map,
)
from ottla.broker.config.option import HIDDEN, ConfigError, Option, Origin, Setting, value_text
from ottla.broker.config.unknown import known_to_kafka, may_be_secret, suggestion
from ottla.protocol.errors import ProtocolError
from ottla.protocol.java.properties import parse_properties
from ottla.protocol.producer_id_node import parse_address

FLAG: Final = "flag"
ENVIRONMENT: Final = "environment"
FILE: Final = "file"

# Variables of Kafka's scripts and its container image that are not broker options.
_NOT_OPTIONS: Final = re.compile(
    r"KAFKA_(HOME|VERSION|OPTS|DEBUG|CLUSTER_ID|HEAP_OPTS?|GC_LOG_OPTS|CLASSPATH|JVM_\w*|LOG4J\w*|TOOLS_LOG4J\w*|JMX_\w*)"
)
_JAAS_FILE: Final = re.compile(r"-Djava\.security\.auth\.login\.config==?(\S+)")
_UNDERSCORES: Final = {1: ".", 2: "_", 3: "-"}


def from_flags(pairs: Iterable[str], flag: str = "--override") -> list[Setting]:
    """Return `key=value` pairs as settings."""
    settings = []
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"{flag} {pair}: must be key=value")
        settings.append(Setting(key.strip(), text, Origin(FLAG, flag)))
    return settings


def environment_key(variable: str) -> str:
    """Return the key of a variable as Kafka's container image maps it: `_` to a dot, `__` to `_`, `___` to a dash."""
    name = variable.removeprefix("KAFKA_").lower()
    return re.sub("_{1,3}", lambda run: _UNDERSCORES[len(run[0])], name)


def jaas_file_of(environment: Mapping[str, str]) -> str:
    """Return the path of the JAAS file in `KAFKA_OPTS` (an option of Java), or an empty string."""
    found = _JAAS_FILE.search(environment.get("KAFKA_OPTS", ""))
    return "" if found is None else found[1].strip("\"'")


def from_environment(environment: Mapping[str, str]) -> list[Setting]:
    """Return the `KAFKA_...` variables as settings, without those for the Java machine and Kafka's scripts."""
    return [
        Setting(environment_key(variable), text, Origin(ENVIRONMENT, variable))
        for variable, text in sorted(environment.items())
        if variable.startswith("KAFKA_") and not _NOT_OPTIONS.fullmatch(variable)
    ]


def from_properties(text: str, name: str) -> list[Setting]:
    """Return the entries of a Java properties file; `name` is the file's, for the origin. Raises ConfigError."""
    try:
        return [Setting(key, value, Origin(FILE, f"{name}:{line}")) for line, key, value in parse_properties(text)]
    except ProtocolError as broken:
        raise ConfigError(f"{name}: {broken}") from None


class Loaded(NamedTuple):
    """A configuration, and the given keys that it does not have."""

    config: Config
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]
    voters: int = 0
    """The number of nodes in `controller.quorum.voters`."""

    def notes(self) -> list[str]:
        """Return the log lines about those keys at start: one for keys that Kafka knows, one for unknown keys."""
        notes = []
        if self.config.zookeeper_connect and self.config.producer_id_manager != "zookeeper":
            notes.append("zookeeper.connect has no effect without producer.id.manager=zookeeper")
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
    listener_options, origins = _of_listeners(sources)
    values: dict[str, Any] = {"listener_options": listener_options, "jaas_file": jaas_file}
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
    origins |= {key: setting.origin for key, setting in chosen.items()}
    config = _check(Config(**values, origins=origins), chosen)
    ignored = {key for key in strange if known_to_kafka(key)}
    given_voters = strange.get("controller.quorum.voters")
    voters = 0 if given_voters is None else len([each for each in given_voters.text.split(",") if each.strip()])
    return Loaded(config, tuple(sorted(ignored)), tuple(sorted(strange.keys() - ignored)), voters)


def _of_listeners(sources: Sequence[Sequence[Setting]]) -> tuple[dict[str, dict[str, str]], dict[str, Origin]]:
    """Return the options of single listeners, by the listener's name, and their origins; the first source takes
    precedence."""
    found: dict[str, dict[str, str]] = {}
    origins: dict[str, Origin] = {}
    for source in reversed(sources):
        for setting in source:
            named, option = of_listener(setting.key), _option(setting.key)
            if named is not None and option is not None:
                found.setdefault(named[0], {})[named[1]] = value_text(_parse(option, setting))
                origins[listener_key(*named)] = setting.origin
    return found, origins


def _option(key: str) -> Option | None:
    """Return the option of a key, of the broker or of one listener."""
    named = of_listener(key)
    return OPTION_OF_KEY.get(key) if named is None else LISTENER_OPTIONS.get(named[1])


def _refuse_unknown_flags(settings: Iterable[Setting]) -> None:
    for setting in settings:
        if setting.origin.source == FLAG and setting.key not in OPTION_OF_KEY and not known_to_kafka(setting.key):
            meant = suggestion(setting.key) or "`ottla configs` lists them"
            shown = HIDDEN if may_be_secret(setting.key) else setting.text
            raise ConfigError(f"{setting.origin.place} {setting.key}={shown}: there is no such option; {meant}")


def _parse(option: Option, setting: Setting) -> Any:
    try:
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
        default = Setting(key, value_text(OPTION_OF_KEY[key].default), Origin("default"))
        return _impossible(chosen.get(key, default), must_be)

    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise refuse(
            "group.min.session.timeout.ms",
            f"at most {config.group_max_session_timeout_ms} (group.max.session.timeout.ms)",
        )
    problem = timeout_problem(config)
    if problem is not None:
        raise refuse(*problem)
    if config.producer_id_manager == "zookeeper":
        try:
            parse_address(config.zookeeper_connect)
        except ValueError as error:
            raise refuse("zookeeper.connect", f"host:port,host:port/root ({error})") from None
        if find_spec("kazoo") is None:
            raise refuse("producer.id.manager", "metadata, or pip install 'ottla[zookeeper]' before")
    return _check_listeners(config, refuse)


def _check_listeners(config: Config, refuse: Callable[[str, str], ConfigError]) -> Config:
    """Check the listeners, and return the configuration without the controller's listeners in both lists."""
    protocols = parse_protocol_map(config.listener_security_protocol_map or DEFAULT_PROTOCOL_MAP)
    try:
        listeners = broker_listeners(config.listeners, config.controller_listener_names, protocols)
    except ValueError as error:
        raise refuse("listeners", str(error)) from None
    for listener in listeners:
        if protocols[listener.name] in WITH_LOGIN:
            from ottla.broker.config.sasl import sasl_settings

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
        because = "" if advertised else ", because a listener at 0.0.0.0 or :: names none"
        raise refuse("advertised.listeners", f"{LISTENER_RANGE}, with a host that clients can reach{because}")
    names = [listener.name for listener in advertised or listeners]
    between_brokers = listener_names(config.inter_broker_listener_name)
    if not between_brokers.issubset(names):
        raise refuse("inter.broker.listener.name", f"an advertised listener ({', '.join(sorted(names))})")
    return dataclasses.replace(config, listeners=listeners, advertised_listeners=advertised)
