"""Options of a table in Spark's catalog. pure

Spark passes the options of `CREATE TABLE` to a Python data source when it requests the columns, and omits them when the
table is read (seen with 4.0 and 4.3). So the metadata of the first column, which the catalog stores, has the options.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructType

from ottla.scan import schemas

_METADATA = "ottla.options"
# Properties of a table, which Spark passes together with its options.
_PROVIDER, _PREFIX = "provider", "option."
# Types whose names in the JSON of a schema differ from those in SQL.
_JSON: dict[str, Any] = {"int": "integer", "bigint": "long"}


def options_of_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table from the options that Spark passes; None if Spark does not create a table."""
    if _PROVIDER not in given:
        return None
    options = {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}
    return options | {"path": given["path"]} if "path" in given else options


def table_schema(view: str, options: Mapping[str, str]) -> StructType:
    """Return the columns of a view, of which the first has the options in its metadata."""
    fields = [
        {"name": name, "type": _type(kind), "nullable": True, "metadata": {}}
        for name, kind in schemas.VIEWS[view].items()
    ]
    fields[0]["metadata"] = {_METADATA: dict(options)}
    return StructType.fromJson({"type": "struct", "fields": fields})


def kept_options(schema: StructType) -> dict[str, str]:
    """Return the options that `table_schema` stored; empty for other schemas."""
    found: dict[str, str] = {}
    for field in schema.fields:
        found.update(field.metadata.get(_METADATA, {}))
    return found


def _type(kind: str) -> Any:
    """Return a view's type in the JSON of a schema: a plain type, a list of structs or a list of numbers."""
    if kind.startswith("array<"):
        element = _type(kind.removeprefix("array<").removesuffix(">"))
        return {"type": "array", "elementType": element, "containsNull": True}
    if kind.startswith("struct<"):
        members = (member.split(":", 1) for member in kind.removeprefix("struct<").removesuffix(">").split(","))
        fields = [{"name": name, "type": _type(of), "nullable": True, "metadata": {}} for name, of in members]
        return {"type": "struct", "fields": fields}
    return _JSON.get(kind, kind)
