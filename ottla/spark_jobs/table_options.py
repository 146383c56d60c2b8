"""The options of a table that stands in Spark's catalog. pure

Spark tells a Python data source the options of `CREATE TABLE` when it asks for the columns, and none of them when the
table is read (seen with 4.0 and 4.3). So they go into the metadata of the first column, which the catalog keeps.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructType

from ottla.scan import schemas

_METADATA = "ottla.options"
# Among the properties of a table, which stand beside its options.
_PROVIDER, _PREFIX = "provider", "option."
# Words of SQL whose names in the JSON of a schema differ.
_JSON: dict[str, Any] = {"int": "integer", "bigint": "long"}


def options_of_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Of what Spark says where a table is made, the options; None where none is."""
    if _PROVIDER not in given:
        return None
    options = {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}
    return options | {"path": given["path"]} if "path" in given else options


def table_schema(view: str, options: Mapping[str, str]) -> StructType:
    """The columns of a view, of which the first keeps the options."""
    fields = [
        {"name": name, "type": _type(kind), "nullable": True, "metadata": {}}
        for name, kind in schemas.VIEWS[view].items()
    ]
    fields[0]["metadata"] = {_METADATA: dict(options)}
    return StructType.fromJson({"type": "struct", "fields": fields})


def kept_options(schema: StructType) -> dict[str, str]:
    """What `table_schema` kept; nothing of a schema that is not of a table."""
    found: dict[str, str] = {}
    for field in schema.fields:
        found.update(field.metadata.get(_METADATA, {}))
    return found


def _type(kind: str) -> Any:
    """A type in the JSON of a schema, of those that views have: plain ones, and lists of structs and of numbers."""
    if kind.startswith("array<"):
        element = _type(kind.removeprefix("array<").removesuffix(">"))
        return {"type": "array", "elementType": element, "containsNull": True}
    if kind.startswith("struct<"):
        members = (member.split(":", 1) for member in kind.removeprefix("struct<").removesuffix(">").split(","))
        fields = [{"name": name, "type": _type(of), "nullable": True, "metadata": {}} for name, of in members]
        return {"type": "struct", "fields": fields}
    return _JSON.get(kind, kind)
