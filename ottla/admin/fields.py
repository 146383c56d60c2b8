"""Validation of JSON values against their schemas. pure

A schema uses a part of JSON Schema: `type` (one or a list), `enum`, `minimum`, `maximum`, `minLength`, `maxLength`,
`items`, `maxItems`, and for objects `properties` and `required`. An object may have other names than its properties
only if `additionalProperties` is true. An array may have `maxItems` items, by default `MOST_ITEMS`, and an object
`MOST_ITEMS` names: a value is checked in one step.
"""

from collections.abc import Mapping
from typing import Any, Final

from ottla.admin.routes import AdminError
from ottla.suggestion import did_you_mean

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
NUMBER_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
MOST_ITEMS: Final = 1_000

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_WORDS: Final = {
    "object": "an object",
    "array": "an array",
    "integer": "a whole number",
    "boolean": "true or false",
    "null": "null",
}


def an_object(properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties. `more` are further words of the schema."""
    return {"type": "object", **more, "properties": properties}


def a_list(items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of an array of these items."""
    return {"type": "array", **more, "items": items}


def check_body(body: Any, schema: Schema) -> Any:
    """Return the body of a request after checking it against the schema: an object by default.

    A missing body is an empty object if the schema requires nothing.

    AdminError 422 with the first fault.
    """
    if body is None and schema.get("required"):
        raise AdminError(422, "The request needs a body: a JSON object")
    if body is None:
        return {}
    _check(body, {"type": "object", **schema}, "The body")
    return body


def _check(value: Any, schema: Schema, place: str) -> None:
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else list(schema.get("type", ()))
    if kinds and not any(_is_a(value, kind) for kind in kinds):
        expected = " or ".join(_WORDS.get(kind, f"a {kind}") for kind in kinds)
        raise AdminError(422, f"{place} must be {expected}")
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(map(str, schema["enum"]))
        raise AdminError(422, f"{place} must be one of {choices}")
    _check_range(value, schema, place)
    if isinstance(value, dict) and "properties" in schema:
        _check_names(value, schema, place)
    if isinstance(value, list) and len(value) > schema.get("maxItems", MOST_ITEMS):
        raise AdminError(422, f"{place} must have at most {schema.get('maxItems', MOST_ITEMS)} items")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            _check(item, schema["items"], f"{place}[{index}]" if place != "The body" else f"[{index}]")


def _check_names(value: dict[str, Any], schema: Schema, place: str) -> None:
    properties: Mapping[str, Schema] = schema["properties"]
    within = "" if place == "The body" else f"{place}."
    if len(value) > MOST_ITEMS:
        raise AdminError(422, f"{place} must have at most {MOST_ITEMS} names")
    for name, item in value.items():
        if name in properties:
            _check(item, properties[name], within + name)
        elif not schema.get("additionalProperties"):
            raise AdminError(422, f"{within}{name} is not known: {did_you_mean(name, list(properties))}")
    for name in schema.get("required", ()):
        if name not in value:
            raise AdminError(422, f"{within}{name} is missing")


def _check_range(value: Any, schema: Schema, place: str) -> None:
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            raise AdminError(422, f"{place} must not be empty" if not value else f"{place} is too short")
        if len(value) > schema.get("maxLength", len(value)):
            raise AdminError(422, f"{place} must have at most {schema['maxLength']} characters")
    elif _is_a(value, "number"):
        if value < schema.get("minimum", value):
            raise AdminError(422, f"{place} must be at least {schema['minimum']}")
        if value > schema.get("maximum", value):
            raise AdminError(422, f"{place} must be at most {schema['maximum']}")


def _is_a(value: Any, kind: str) -> bool:
    """Return whether a value has a type of JSON Schema: true is not a number, and 2.0 is an integer."""
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])
