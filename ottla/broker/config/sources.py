"""Flags, environment and properties files as settings. pure"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.broker.config.option import ConfigError, Origin, Setting

FLAG: Final = "flag"
ENVIRONMENT: Final = "environment"
FILE: Final = "file"

# Variables of Kafka's scripts and its container image that are not broker options.
_NOT_OPTIONS = re.compile(
    r"KAFKA_(HOME|VERSION|OPTS|DEBUG|CLUSTER_ID|HEAP_OPTS?|GC_LOG_OPTS|CLASSPATH|JVM_\w*|LOG4J\w*|TOOLS_LOG4J\w*|JMX_\w*)"
)
_JAAS_FILE = re.compile(r"-Djava\.security\.auth\.login\.config==?(\S+)")
_UNDERSCORES = {1: ".", 2: "_", 3: "-"}

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_KEY_AND_VALUE = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def from_flags(pairs: Iterable[str], flag: str = "--override") -> list[Setting]:
    """`key=value` pairs as settings."""
    settings = []
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"{flag} {pair}: must be key=value")
        settings.append(Setting(key.strip(), text, Origin(FLAG, flag)))
    return settings


def environment_key(variable: str) -> str:
    """The key of a variable, as Kafka's container image maps it: `_` is a dot, `__` an underscore, `___` a dash."""
    name = variable.removeprefix("KAFKA_").lower()
    return re.sub("_{1,3}", lambda run: _UNDERSCORES[len(run[0])], name)


def jaas_file_of(environment: Mapping[str, str]) -> str:
    """The file with JAAS entries that Java is told of in `KAFKA_OPTS`, or an empty string."""
    found = _JAAS_FILE.search(environment.get("KAFKA_OPTS", ""))
    return "" if found is None else found[1].strip("\"'")


def from_environment(environment: Mapping[str, str]) -> list[Setting]:
    """The `KAFKA_...` variables as settings, without those that are meant for the Java machine and its scripts."""
    return [
        Setting(environment_key(variable), text, Origin(ENVIRONMENT, variable))
        for variable, text in sorted(environment.items())
        if variable.startswith("KAFKA_") and not _NOT_OPTIONS.fullmatch(variable)
    ]


def from_properties(text: str, name: str) -> list[Setting]:
    """The entries of a Java properties file; `name` is the file's, for the origin."""
    settings = []
    for number, line in _logical_lines(text):
        key, value = _KEY_AND_VALUE.fullmatch(line).groups()  # type: ignore[union-attr]  # matches every text
        settings.append(Setting(_unescape(key), _unescape(value), Origin(FILE, f"{name}:{number}")))
    return settings


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and blanks, each with the number of its first line."""
    pending, start = "", 0
    for number, raw in enumerate(re.split("\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not pending:
            start = number
            if not line or line[0] in "#!":
                continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
        else:
            yield start, pending + line
            pending = ""
    if pending:
        yield start, pending


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPES.get(escape, escape)

    return _ESCAPE.sub(replace, text)
