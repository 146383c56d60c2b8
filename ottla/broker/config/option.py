"""An option as a value: its key, type, default, range and meaning. pure"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag, IntEnum, auto
from typing import Any, Final, NamedTuple

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_OPTION: Final = "option"


class ConfigError(ValueError):
    """An invalid value: the message is one line with the key, the value, its source and the range."""


class Kind(IntEnum):
    """The type of an option, with the code it has in DescribeConfigs (`DescribeConfigsResponse.ConfigType`)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9
    """A secret: its value is never shown."""


# Sources of a value, with their codes in DescribeConfigs (`DescribeConfigsResponse.ConfigSource`).
TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
GROUP_CONFIG: Final = 8


class Origin(NamedTuple):
    """The origin of a value: the source by name, and the place in it (a flag, a variable, a file and line)."""

    source: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.place}".rstrip()


DEFAULT: Final = Origin("default")
HIDDEN: Final = "[hidden]"
"""`Password.HIDDEN` of Kafka."""


class Scope(Flag):
    """Ways to set an option besides at the start for the whole broker."""

    DYNAMIC = auto()
    """While the broker runs. With LISTENER: only for one listener."""
    LISTENER = auto()
    """For one listener."""
    MECHANISM = auto()
    """For one SASL mechanism of a listener."""


START: Final = Scope(0)
DYNAMIC, LISTENER, MECHANISM = Scope


class Setting(NamedTuple):
    """A key with its given text."""

    key: str
    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a broker, a topic or a group.

    `attribute` is the field that holds it, `key` Kafka's name: the same with dots. `also` are other keys for the same
    value, each with the factor for its number. A topic option may name the `broker` option that is its default.

    An option that is not `acted_on` is kept and shown, but has no effect.

    `read` replaces the rules of the kind. `check` gets a value that follows these rules. Both raise ValueError with the
    allowed values.
    """

    attribute: str
    kind: Kind
    default: Any
    meaning: str
    scope: Scope = START
    at_least: float = 0
    at_most: float = 0
    one_of: tuple[str, ...] = ()
    also: Mapping[str, int] = dataclasses.field(default_factory=dict)
    broker: str = ""
    acted_on: bool = True
    read: Callable[[str], Any] | None = None
    check: Callable[[str], object] | None = None

    @property
    def key(self) -> str:
        return self.attribute.replace("_", ".")

    @property
    def range(self) -> str:
        """The allowed values, in words."""
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        if self.one_of:
            return ("a list of " if self.kind is Kind.LIST else "one of ") + ", ".join(self.one_of)
        if self.kind in (Kind.INT, Kind.LONG):
            return f"a whole number from {self.at_least} to {self.at_most}"
        if self.kind is Kind.DOUBLE:
            return f"a number from {self.at_least} to {self.at_most}"
        return "text"

    @property
    def is_secret(self) -> bool:
        """Whether its value is never shown."""
        return self.kind is Kind.PASSWORD

    def to_text(self, value: object) -> str:
        """Return a value as text, hidden if it is a secret."""
        return HIDDEN if self.is_secret and value else value_text(value)

    @property
    def described(self) -> str:
        """The meaning, and whether Ottla acts on it."""
        return self.meaning if self.acted_on else f"{self.meaning} Kept and shown, not acted on."

    def detect_invalid(self, text: str, key: str = "") -> str:
        """Return the reason why a config with this text (under `key`, if given) is invalid, or an empty string."""
        try:
            self.parse(text)
        except ValueError as error:
            return f"Invalid value {text} for configuration {key or self.key}: must be {error}"
        return ""

    def parse(self, text: str, multiplier: int = 1) -> Any:
        """Return the value of `text`. The ValueError of a malformed one, or one out of range, has the allowed values.

        `multiplier` is the factor of one of the `also` keys.
        """
        if self.read is not None:
            return self.read(text)
        value = self._parse(text.strip(), multiplier)
        if self.check is not None:
            self.check(value)
        return value

    def _parse(self, text: str, multiplier: int) -> Any:
        if self.kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError(self.range)
            return text.lower() == "true"
        if self.one_of:
            if not set(self._items(text)) <= set(self.one_of):
                raise ValueError(self.range)
            return ",".join(self._items(text))
        if self.kind in (Kind.INT, Kind.LONG):
            if not _WHOLE_NUMBER.fullmatch(text):
                raise ValueError(self.range)
            number = int(text)
            return self._within(
                number * multiplier if number > 0 else number
            )  # -1 hours mean no limit, not -3600000 ms
        if self.kind is Kind.DOUBLE:
            try:
                return self._within(float(text))
            except ValueError:
                raise ValueError(self.range) from None
        return ",".join(self._items(text))

    def _items(self, text: str) -> list[str]:
        """Return the items of a list without blanks and repetitions, as Kafka reads lists; else the text itself."""
        return list(dict.fromkeys(filter(None, map(str.strip, text.split(","))))) if self.kind is Kind.LIST else [text]

    def _within(self, number: float) -> float:
        if not self.at_least <= number <= self.at_most:
            raise ValueError(self.range)
        return number


def value_text(value: object) -> str:
    """Return a value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


# The functions below make a dataclass field an option, so that the field is the only definition of the option. They
# return `Any` because the field's annotation has the type.


def int32(default: int, meaning: str, scope: Scope = START, **more: Any) -> Any:
    return option_field(Option("", Kind.INT, default, meaning, scope, **{"at_most": INT32_MAX, **more}))


def int64(default: int, meaning: str, scope: Scope = START, **more: Any) -> Any:
    return option_field(Option("", Kind.LONG, default, meaning, scope, **{"at_most": INT64_MAX, **more}))


def number(default: float, meaning: str, scope: Scope = START, **more: Any) -> Any:
    return option_field(Option("", Kind.DOUBLE, default, meaning, scope, **{"at_most": 1, **more}))


def boolean(default: bool, meaning: str, scope: Scope = START, **more: Any) -> Any:
    return option_field(Option("", Kind.BOOLEAN, default, meaning, scope, **more))


def text(default: str, meaning: str, scope: Scope = START, *, kind: Kind = Kind.STRING, **more: Any) -> Any:
    return option_field(Option("", kind, default, meaning, scope, **more))


def items(default: object, meaning: str, scope: Scope = START, **more: Any) -> Any:
    return option_field(Option("", Kind.LIST, default, meaning, scope, **more))


def password(meaning: str, scope: Scope = START, **more: Any) -> Any:
    return option_field(Option("", Kind.PASSWORD, "", meaning, scope, **more))


def option_field(option: Option) -> Any:
    """Make a field this option, with the name of the field."""
    return dataclasses.field(default=option.default, repr=not option.is_secret, metadata={_OPTION: option})


def options_of(table: type, **same: Any) -> tuple[Option, ...]:
    """Return the options that the fields of a dataclass define, in their order. `same` is common to all."""
    return tuple(
        dataclasses.replace(field.metadata[_OPTION], attribute=field.name, **same)
        for field in dataclasses.fields(table)
        if _OPTION in field.metadata
    )
