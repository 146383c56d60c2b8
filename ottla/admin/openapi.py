"""The description of the admin port, made from its routes: OpenAPI 3.1. pure"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from ottla.admin.routes import JSON, Route

_ERROR: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string", "description": "What is wrong, and what to do about it."}},
}


def make_document(routes: Sequence[Route], version: str, *, has_token: bool) -> dict[str, Any]:
    """Return the OpenAPI document of a broker of this version."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route)
    components: dict[str, Any] = {"schemas": {"Error": _ERROR}}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Ottla's admin port", "version": version},
        "paths": paths,
        "components": components,
    }
    if has_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _operation(route: Route) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.names
    ] + [
        {"name": name, "in": "query", "description": meaning, "schema": {"type": "string"}}
        for name, meaning in route.query.items()
    ]
    operation: dict[str, Any] = {"summary": route.summary}
    if parameters:
        operation["parameters"] = parameters
    if route.is_public:
        operation["security"] = []
    if route.request_schema is not None:
        is_needed = bool(route.request_schema.get("required"))
        operation["requestBody"] = {"required": is_needed, "content": {JSON: {"schema": dict(route.request_schema)}}}
    done: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if route.response_schema is not None:
        done["content"] = {JSON: {"schema": dict(route.response_schema)}}
    refused = {"description": "Refused", "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    operation["responses"] = {str(route.status): done, "default": refused}
    return operation
