"""Flags, environment and properties files as settings. pure"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.broker.config.option import ConfigError, Origin, Setting
from ottla.protocol.errors import ProtocolError
from ottla.protocol.properties import parse_properties

FLAG: Final = "flag"
ENVIRONMENT: Final = "environment"
FILE: Final = "file"

# Variables of Kafka's scripts and its container image that are not broker options.
_NOT_OPTIONS = re.compile(
    r"KAFKA_(HOME|VERSION|OPTS|DEBUG|CLUSTER_ID|HEAP_OPTS?|GC_LOG_OPTS|CLASSPATH|JVM_\w*|LOG4J\w*|TOOLS_LOG4J\w*|JMX_\w*)"
)
_JAAS_FILE = re.compile(r"-Djava\.security\.auth\.login\.config==?(\S+)")
_UNDERSCORES = {1: ".", 2: "_", 3: "-"}


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
