"""Feature levels: the supported ones, and the changes that UpdateFeatures may make. pure

Source: `FeatureControlManager`, `Feature`, `TransactionVersion` of Kafka 4.3.1; KIP-584, KIP-1022.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

METADATA_FEATURE: Final = "metadata.version"
TRANSACTION_FEATURE: Final = "transaction.version"
GROUP_FEATURE: Final = "group.version"
GROUP_VERSION: Final = 1
"""The level of `group.version` in a new directory, as in Kafka: with groups of the consumer protocol."""
METADATA_VERSION: Final = 30

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_FEATURE: (7, 30),
    TRANSACTION_FEATURE: (0, 2),
    GROUP_FEATURE: (0, 1),
}
"""Lowest and highest level of every feature; level 0 is the same as not finalized."""


class UpgradeType(IntEnum):
    """Upgrade types of an update, with the numbers of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """Feature and its new level. `upgrade_type` is the number in the request, which may be unknown."""

    feature: str
    level: int
    upgrade_type: int


def update_problem(finalized: Mapping[str, int], updates: Sequence[FeatureUpdate], node_id: int) -> str | None:
    """Return the reason why the updates are refused, None if they are allowed. One refused update refuses all of
    them."""
    for update in updates:
        problem = _problem(finalized.get(update.feature, 0), update, node_id)
        if problem is not None:
            return f"The update failed for all features since the following feature had an error: {problem}"
    return None


def _problem(current: int, update: FeatureUpdate, node_id: int) -> str | None:
    name, level, upgrade_type = update
    invalid = f"Invalid update version {level} for feature {name}. "
    if upgrade_type not in tuple(UpgradeType):
        return invalid + "The controller does not support the given upgrade type."
    if level < 0:
        return invalid + "A feature version cannot be less than 0."
    supported = SUPPORTED_FEATURES.get(name)
    if supported is None:
        return invalid + f"Local controller {node_id} does not support this feature."
    lowest, highest = supported
    if not lowest <= level <= highest:
        return invalid + f"Local controller {node_id} only supports versions {lowest}-{highest}"
    if level < current and upgrade_type == UpgradeType.UPGRADE:
        return invalid + (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if level > current and upgrade_type != UpgradeType.UPGRADE:
        return invalid + "Can't downgrade to a newer version."
    if name == METADATA_FEATURE and level < current:
        return f"Unsupported metadata.version downgrade from {current} to {level}."
    return None
