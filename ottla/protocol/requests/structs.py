"""Walks over kafka-python's messages, whatever their schema. pure"""

from collections.abc import Iterator
from typing import Any, Final

ERROR_FIELDS: Final = frozenset({"error_code", "partition_error_code"})
"""Names of the fields with error codes."""


def structs(message: Any) -> Iterator[Any]:
    """Yield the message and every struct in its arrays, from the outside in."""
    yield message
    for name, field in type(message).fields.items():
        if field.is_array() and field.is_struct_array():
            for row in getattr(message, name, None) or ():
                yield from structs(row)


def error_codes(reply: Any) -> Iterator[int]:
    """Yield all error codes of a reply, at any depth."""
    for struct in structs(reply):
        for name in ERROR_FIELDS & type(struct).fields.keys():
            code = getattr(struct, name)
            if code is not None:
                yield code
