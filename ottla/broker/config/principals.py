"""Principals of options: `super.users`, and the names in clients' certificates. pure

`ssl.principal.mapping.rules` maps the name in a certificate:

    RULE:PATTERN/REPLACEMENT/[L|U],...,DEFAULT

The first rule whose pattern matches the whole name decides. Source: `SslPrincipalMapper` of Kafka 4.3.1, Java's
`Matcher.replaceAll`. Patterns are Python's, which agree with Java's in the syntax that rules use.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)(.*?)|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*(?:{_RULE})\s*(?:,\s*|$)")
_REFERENCE: Final = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d+)", re.DOTALL)
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_RULES_RANGE: Final = "RULE:PATTERN/REPLACEMENT/[L|U], comma separated, or DEFAULT"
_SUPER_USERS_RANGE: Final = "TYPE:NAME (usually User:NAME), semicolon separated"


class PrincipalRule(NamedTuple):
    """A rule; without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str
    """L, U or nothing."""

    def map_name(self, name: str) -> str | None:
        """Return the mapped name; None if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self._expand, name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _expand(self, match: re.Match[str]) -> str:
        def expand(reference: re.Match[str]) -> str:
            escaped, group, digits = reference.groups()
            if escaped is not None:
                return str(escaped)
            if group is not None:
                return match[group] or ""
            return _expand_group(match, digits)

        return _REFERENCE.sub(expand, self.replacement)


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals, as TYPE:NAME. The ValueError has the allowed form of the text.

    A name may hold commas and colons, as those of certificates do. Source: `StandardAuthorizer.getConfiguredSuperUsers`
    and `SecurityUtils.parseKafkaPrincipal` of Kafka 4.3.1.
    """
    found = [part.strip() for part in text.split(";") if part.strip()]
    if any(not all(part.partition(":")[::2]) for part in found):
        raise ValueError(_SUPER_USERS_RANGE)
    return frozenset(found)


def parse_principal_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Return the rules in their order. The ValueError has the allowed form."""
    found = []
    for match in _SPLITTER.finditer(text.strip()):
        default, pattern, replacement, case, *other = match.groups()
        if any(other):
            raise ValueError(_RULES_RANGE)
        if default:
            found.append(PrincipalRule(None, "", ""))
        elif pattern is not None:
            try:
                compiled = re.compile(_NAMED_GROUP.sub("(?P<", pattern))
            except re.error as error:
                raise ValueError(f"{_RULES_RANGE}, with a valid pattern ({error})") from None
            found.append(_check_replacement(PrincipalRule(compiled, replacement, case)))
    return tuple(found)


def mapped_name(rules: Sequence[PrincipalRule], name: str) -> str | None:
    """Return the user for this name of a certificate; None if no rule matches."""
    return next((found for rule in rules if (found := rule.map_name(name)) is not None), None)


def _check_replacement(rule: PrincipalRule) -> PrincipalRule:
    """Return the rule. ValueError if the replacement names a group that the pattern lacks."""
    assert rule.pattern is not None
    names = {match[2] for match in _REFERENCE.finditer(rule.replacement) if match[2]}
    if not names <= rule.pattern.groupindex.keys():
        raise ValueError(f"{_RULES_RANGE}, with a replacement that names only groups of the pattern")
    return rule


def _expand_group(match: re.Match[str], digits: str) -> str:
    """Expand `$` and digits: the longest number of a group counts. If even the first digit is no group, return the
    text."""
    groups = match.re.groups
    size = 1
    while size < len(digits) and int(digits[: size + 1]) <= groups:
        size += 1
    number = int(digits[:size])
    return (match[number] or "" if number <= groups else f"${digits[:size]}") + digits[size:]
