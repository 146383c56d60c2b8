"""JAAS, the text format in which Kafka configures login modules and their users. pure

    MODULE FLAG KEY=VALUE KEY="VALUE" ...;

A file of `java.security.auth.login.config` has such entries in `NAME { ... };`, where the name is KafkaServer, or the
lower-case name of a listener and .KafkaServer. Source: `JaasConfig`, `JaasContext` of Kafka 4.3.1 and Java's
`StreamTokenizer`, whose comments, quotes and escapes these are.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\r\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:\\.|[^"\\\r\n])*"|'(?:\\.|[^'\\\r\n])*')
    |(?P<word>[\w.$\-\u00a0-\U0010ffff]+)
    |(?P<sign>[{};=])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})


class LoginModule(NamedTuple):
    """An entry: the class without its package, and its options, which hold passwords."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, {len(self.options)} options)"


class _Token(NamedTuple):
    text: str
    is_sign: bool


def parse_jaas(text: str) -> LoginModule:
    """Return the one entry of a `sasl.jaas.config`. The ValueError has the fault, but no part of the text."""
    tokens = _tokens(text)
    if not tokens:
        raise ValueError("a JAAS entry: MODULE required KEY=VALUE ...;")
    module, rest = _read_entry(tokens)
    if rest:
        raise ValueError("one JAAS entry that ends with ;")
    return module


def parse_jaas_file(text: str) -> dict[str, list[LoginModule]]:
    """Return the entries of a file of `java.security.auth.login.config`, by name. Raises ValueError."""
    tokens, found = _tokens(text), {}
    while tokens:
        if len(tokens) < 2 or tokens[0].is_sign or tokens[1] != ("{", True):
            raise ValueError("NAME { MODULE required KEY=VALUE ...; };")
        name, modules, tokens = tokens[0].text, [], tokens[2:]
        while tokens and not tokens[0].is_sign:
            module, tokens = _read_entry(tokens)
            modules.append(module)
        if tokens[:2] != [("}", True), (";", True)]:
            raise ValueError("NAME { MODULE required KEY=VALUE ...; };")
        found[name], tokens = modules, tokens[2:]
    return found


def _read_entry(tokens: Sequence[_Token]) -> tuple[LoginModule, list[_Token]]:
    """Return the first entry, and the tokens after it."""
    flagged = len(tokens) > 1 and not tokens[0].is_sign and tokens[1].text.lower() in _FLAGS
    if not flagged:
        raise ValueError("a JAAS entry with a module and a flag: MODULE required KEY=VALUE ...;")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != (";", True):
        key, equals, value = [*tokens[at : at + 3], *[_Token("", True)] * 3][:3]
        if key.is_sign or equals != ("=", True) or value.is_sign:
            raise ValueError(f'a JAAS entry whose option {len(options) + 1} is KEY=VALUE or KEY="VALUE"')
        options[key.text] = value.text
        at += 3
    if at >= len(tokens):
        raise ValueError("a JAAS entry that ends with ;")
    return LoginModule(tokens[0].text.rpartition(".")[2], options), [*tokens[at + 1 :]]


def _tokens(text: str) -> list[_Token]:
    found, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"a JAAS entry; put the value with the character at position {position} in quotes")
        position = match.end()
        if match["quoted"] is not None:
            found.append(_Token(_ESCAPE.sub(_unescape, match["quoted"][1:-1]), is_sign=False))
        elif match["blank"] is None:
            found.append(_Token(match[0], match["sign"] is not None))
    return found


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _ESCAPES.get(escape, escape)
