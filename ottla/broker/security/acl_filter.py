"""Filters of ACL entries. pure

Source: `AclBindingFilter`, `ResourcePatternFilter`, `AccessControlEntryFilter` of Kafka 4.3.1.
"""

from typing import Final, NamedTuple

from ottla.protocol.acls import WILDCARD, AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord

_ANY: Final = 1


class AclFilter(NamedTuple):
    """Filter of ACL entries. None and ANY match all; pattern type MATCH matches all patterns that the name matches."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @property
    def problem(self) -> str:
        """The unknown part of the filter in Kafka's words, or an empty string."""
        if is_unknown(ResourceType, self.resource_type) or is_unknown(PatternType, self.pattern_type):
            return "Unknown patternFilter."
        if is_unknown(AclOperation, self.operation) or is_unknown(PermissionType, self.permission_type):
            return "Unknown entryFilter."
        return ""

    def matches(self, entry: AccessControlEntryRecord) -> bool:
        """Return whether an entry matches the filter."""
        return (
            self.resource_type in (_ANY, entry.resource_type)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (_ANY, entry.operation)
            and self.permission_type in (_ANY, entry.permission_type)
            and self._matches_pattern(entry.pattern_type, entry.resource_name)
        )

    def _matches_pattern(self, pattern_type: int, name: str) -> bool:
        pattern = self.resource_name
        if self.pattern_type == PatternType.MATCH:
            if pattern is None:
                return True
            if pattern_type == PatternType.PREFIXED:
                return pattern.startswith(name)
            return name in (pattern, WILDCARD)
        return self.pattern_type in (_ANY, pattern_type) and pattern in (None, name)


def is_unknown(kind: type[ResourceType | PatternType | AclOperation | PermissionType], code: int) -> bool:
    """Return whether a code is UNKNOWN, or not a member of the enum."""
    return code == 0 or code not in kind._value2member_map_
