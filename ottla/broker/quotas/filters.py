"""Parse and match the filter of DescribeClientQuotas. pure

Source: `ClientQuotasImage.describe` of Kafka 4.3.1; the error texts are Kafka's.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.broker.quotas.limits import CLIENT_ID, IP, USER
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.security_records import QuotaEntity

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
"""Any name of the type, the default included (`DescribeClientQuotasRequest.MATCH_TYPE_SPECIFIED`)."""
_WITHOUT_MATCH: Final = {DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}


class Component(NamedTuple):
    """The condition on the names of one entity type."""

    entity_type: str
    match_type: int
    match: str | None


class Filter(NamedTuple):
    """A filter of entities. With `strict` an entity has no other types than those of the filter."""

    components: dict[str, Component]
    strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        """Return whether the entity matches the filter."""
        names = dict(entity)
        if self.strict and len(names) != len(self.components):
            return False
        return all(
            kind in names and (component.match_type == SPECIFIED or names[kind] == component.match)
            for kind, component in self.components.items()
        )


def read_filter(components: Iterable[Component], strict: bool) -> Filter | ApiError:
    """Return the filter of a request, or an error. Reads at most one component more than the number of types."""
    found: dict[str, Component] = {}
    for component in components:
        problem = _problem(component, found)
        if problem is not None:
            return problem
        found[component.entity_type] = component
    if IP in found and (USER in found or CLIENT_ID in found):
        return _refusal(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    return Filter(found, strict)


def _problem(component: Component, found: dict[str, Component]) -> ApiError | None:
    kind, match_type, match = component
    if not kind:
        return _refusal("Invalid empty entity type.")
    if kind in found:
        return _refusal(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in (IP, USER, CLIENT_ID):
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    if match_type == EXACT:
        return _refusal("Request specified MATCH_TYPE_EXACT, but set match string to null.") if match is None else None
    if match_type not in _WITHOUT_MATCH:
        return _refusal(f"Unknown match type {match_type}")
    if match is not None:
        return _refusal(f"Request specified {_WITHOUT_MATCH[match_type]}, but also specified a match string.")
    return None


def _refusal(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
