"""JSON of requests and responses of the admin port. pure

Reading is stricter than the standard library: a name twice in an object, NaN, numbers that are too large and half of a
surrogate pair are refused. A body has at most `BODY_BYTES`, so reading is one step.
"""

import json
from collections import Counter
from collections.abc import Iterator
from math import isinf
from typing import Any, Final

BODY_BYTES: Final = 64 * 1024
READ_BYTE_US: Final = 0.04
"""Cost of reading one byte."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


class BadJson(ValueError):
    """Text that is not JSON: the message has the error and, if possible, its place."""


def read_json(text: str) -> Any:
    """Return the value of a text. Raises BadJson."""
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:
            _ENCODER.encode(value).encode()
    except json.JSONDecodeError as error:
        raise BadJson(f"{error.msg} (line {error.lineno}, column {error.colno})") from None
    except UnicodeEncodeError:
        raise BadJson("half of a surrogate pair") from None
    except RecursionError:
        raise BadJson("too many nested values") from None
    except ValueError as error:
        raise BadJson(f"{error}") from None
    return value


def write_json(value: Any) -> Iterator[str]:
    """Yield the text of a value in small pieces. ValueError or TypeError for a value that JSON does not have."""
    return _ENCODER.iterencode(value)


def _to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise BadJson(f"the name {json.dumps(twice[:100])} occurs twice")
    return found


def _to_float(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise BadJson(f"the number {text[:100]} is too large")
    return number


def _refuse_constant(name: str) -> None:
    raise BadJson(f"{name} is no JSON value")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_to_object, parse_float=_to_float, parse_constant=_refuse_constant)
