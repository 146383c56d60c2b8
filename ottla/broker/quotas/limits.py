"""Find the quota that applies to a client, among those of users, client ids, both, and their defaults. pure

A quota is for a user together with a client id, for a user alone, or for a client id alone. The first of these that is
set applies. `<default>` applies to every name without a quota of its own, and each of these names is measured
separately:

    user and client id; user and <default>; user; <default> and client id; <default> and <default>; <default> user;
    client id; <default> client id

Source: `ClientQuotaManager.DefaultQuotaCallback` of Kafka 4.3.1.
"""

from collections.abc import Mapping
from typing import Final

CLIENT_ID: Final = "client-id"
IP: Final = "ip"
USER: Final = "user"
DEFAULT: Final = None
"""The default entity, in place of a name."""
NO_NAME: Final = ""
"""Marks a type for which an entity has no name. No name is empty."""

Owner = tuple[str, str]
"""The entity that shares one measurement: (user, client id), either of which may be `NO_NAME`."""
_Key = tuple[str | None, str | None]


class Limits:
    """The quotas of one kind, by (user, client id)."""

    __slots__ = ("_by_key", "_with_both")

    def __init__(self) -> None:
        self._by_key: dict[_Key, float] = {}
        self._with_both = 0

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def set(self, entity: Mapping[str, str | None], limit: float | None) -> None:
        """Set the quota of an entity, given by the names of `user` and `client-id`; None removes it."""
        user, client_id = entity.get(USER, NO_NAME), entity.get(CLIENT_ID, NO_NAME)
        key = user, client_id
        both = user != NO_NAME and client_id != NO_NAME
        if key in self._by_key:
            self._with_both -= both
            del self._by_key[key]
        if limit is not None:
            self._by_key[key] = limit
            self._with_both += both

    def owner(self, user: str, client_id: str) -> Owner:
        """Return the entity that a client of this user and client id is measured with."""
        found, both = self._by_key, self._with_both
        if both and ((user, client_id) in found or (user, DEFAULT) in found):
            return user, client_id
        if (user, NO_NAME) in found:
            return user, NO_NAME
        if both and ((DEFAULT, client_id) in found or (DEFAULT, DEFAULT) in found):
            return user, client_id
        if (DEFAULT, NO_NAME) in found:
            return user, NO_NAME
        return NO_NAME, client_id

    def of(self, owner: Owner) -> float | None:
        """Return the limit per second of an owner; None if it is not limited."""
        user, client_id = owner
        keys: tuple[_Key, ...] = ()
        if user and client_id:
            keys = (user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT)
        elif user:
            keys = (user, NO_NAME), (DEFAULT, NO_NAME)
        elif client_id:
            keys = (NO_NAME, client_id), (NO_NAME, DEFAULT)
        return next((self._by_key[key] for key in keys if key in self._by_key), None)
