"""The columns of each view, their Spark and their Arrow types. free

The columns of `records` are those of Spark's own Kafka source, headers included, and the producer's.
"""

from typing import Any

RECORDS = "records"
DAMAGE = "damage"

VIEWS = {
    RECORDS: {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": "array<struct<key:string,value:binary>>",
        "producerId": "bigint",
        "producerEpoch": "int",
        "sequence": "int",
    },
    DAMAGE: {
        "topic": "string",
        "partition": "int",
        "file": "string",
        "position": "bigint",
        "end": "bigint",
        "reason": "string",
    },
}


class SchemaError(ValueError):
    """The schema asks for a column or type that the view does not have."""


def ddl(view: str) -> str:
    """The view's schema as Spark DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in VIEWS[view].items())


def check_schema(view: str, fields: list[tuple[str, str]]) -> None:
    """`fields`: (name, simpleString of the type) as given to `.schema(...)`, any subset of the view's in any order."""
    columns = VIEWS[view]
    for name, kind in fields:
        if name not in columns:
            raise SchemaError(f"the {view} have no column {name!r}; they have {', '.join(columns)}")
        if kind != columns[name]:
            raise SchemaError(f"column {name} of the {view} is {columns[name]}, not {kind}")


def arrow_schema(view: str, fields: list[tuple[str, bool]]) -> Any:
    """A pyarrow.Schema for `fields`, (name, nullable)."""
    import pyarrow as pa

    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "binary": pa.binary(),
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<struct<key:string,value:binary>>": pa.list_(pa.field("element", pair)),
    }
    return pa.schema([pa.field(name, types[VIEWS[view][name]], nullable=nullable) for name, nullable in fields])
