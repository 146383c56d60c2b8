"""Columns of each view, with their Spark and Arrow types. free

The columns of `records` are those of Spark's own Kafka source, headers included, the producer's and the segment. The
other views use the same names for the same things. docs/data-source.md describes each column.
"""

import re
from typing import Any

from ottla.suggestion import did_you_mean

RECORDS = "records"
BATCHES = "batches"
TRANSACTIONS = "transactions"
PRODUCERS = "producers"
PARTITIONS = "partitions"
TRANSACTION_STATE = "transaction_state"
GROUP_OFFSETS = "group_offsets"
SEGMENTS = "segments"
DAMAGE = "damage"
HANGING = "hanging"
FINDINGS = "findings"

_HEADERS = "array<struct<key:string,value:binary>>"
_TOPIC_PARTITIONS = "array<struct<topic:string,partitions:array<int>>>"

# The partition and the segment of a row.
_PLACE = "topic string, partition int, segment bigint"
_DDL = {
    RECORDS: f"""
        key binary, value binary,
        topic string, partition int, offset bigint,
        timestamp timestamp, timestampType int,
        headers {_HEADERS},
        producerId bigint, producerEpoch int, sequence int,
        segment bigint""",
    BATCHES: f"""
        {_PLACE}, position bigint, size int,
        baseOffset bigint, lastOffset bigint, recordCount int,
        leaderEpoch int, crc bigint,
        attributes int, codec string, timestampType int, isTransactional boolean, isControl boolean,
        baseTimestamp timestamp, maxTimestamp timestamp, deleteHorizon timestamp,
        producerId bigint, producerEpoch int, baseSequence int, lastSequence int,
        controlType string, coordinatorEpoch int, fate string""",
    TRANSACTIONS: f"""
        {_PLACE},
        producerId bigint, producerEpoch int, transactionalId string, fate string,
        firstOffset bigint, lastOffset bigint,
        markerOffset bigint, markerPosition bigint, markerEpoch int, coordinatorEpoch int,
        records bigint, batches bigint, size bigint,
        startTime timestamp, endTime timestamp, durationMs bigint,
        lastStableOffset bigint""",
    PRODUCERS: f"""
        {_PLACE},
        producerId bigint, producerEpoch int, transactionalId string,
        lastSequence int, lastOffset bigint, lastTimestamp timestamp, coordinatorEpoch int,
        openFirstOffset bigint""",
    PARTITIONS: f"""
        {_PLACE}, path string, segments int, size bigint,
        logStart bigint, logEnd bigint, highWatermark bigint, lastStableOffset bigint,
        batches bigint, controlBatches bigint,
        plainRecords bigint, committedRecords bigint, abortedRecords bigint, openRecords bigint,
        committedTransactions bigint, abortedTransactions bigint, openTransactions bigint""",
    TRANSACTION_STATE: f"""
        {_PLACE}, offset bigint, timestamp timestamp,
        transactionalId string,
        producerId bigint, producerEpoch int, previousProducerId bigint, nextProducerId bigint,
        state string, timeoutMs int, partitions {_TOPIC_PARTITIONS},
        startTime timestamp, updateTime timestamp, clientVersion int,
        isTombstone boolean""",
    GROUP_OFFSETS: f"""
        {_PLACE}, offset bigint, timestamp timestamp,
        group string, committedTopic string, committedPartition int,
        committedOffset bigint, leaderEpoch int, metadata string,
        commitTime timestamp, expireTime timestamp, topicId binary,
        producerId bigint, producerEpoch int, fate string,
        isTombstone boolean""",
    SEGMENTS: f"""
        {_PLACE}, path string, isActive boolean, size bigint, modified timestamp,
        indexEntries bigint, timeIndexEntries bigint, abortedTransactions bigint, snapshotProducers bigint,
        largestTimestamp timestamp,
        firstOffset bigint, lastOffset bigint, batches bigint, records bigint, maxTimestamp timestamp""",
    DAMAGE: f"""
        {_PLACE}, file string, position bigint, end bigint, reason string""",
    HANGING: """
        event string, seen timestamp, topic string, partition int,
        producerId bigint, producerEpoch int, transactionalId string,
        firstOffset bigint, records bigint, ageMs bigint, timeoutMs int,
        verdict string, message string, action string""",
    FINDINGS: """
        check string, severity string, topic string, partition int, offset bigint,
        producerId bigint, transactionalId string,
        message string, action string,
        file string, position bigint""",
}


def _columns(ddl: str) -> dict[str, str]:
    return dict(column.split() for column in re.split(r",\s+", ddl.strip()))


VIEWS = {view: _columns(ddl) for view, ddl in _DDL.items()}
"""The types of the columns by name, of each view."""


class SchemaError(ValueError):
    """The schema names a column or type that the view does not have."""


def ddl(view: str) -> str:
    """Return the view's schema as Spark DDL."""
    return ", ".join(f"`{name}` {kind}" for name, kind in VIEWS[view].items())


def check_schema(view: str, fields: list[tuple[str, str]]) -> list[str]:
    """Return the view's own names of the columns in a schema, which may write them in any case.

    `fields`: (name, simpleString of the type) as given to `.schema(...)`, any subset of the view's in any order.
    """
    columns = VIEWS[view]
    names = {name.lower(): name for name in columns}
    found = []
    for given, kind in fields:
        name = names.get(given.lower())
        if name is None:
            raise SchemaError(f"the {view} have no column {given!r}; {did_you_mean(given, columns)}")
        if kind != columns[name]:
            raise SchemaError(f"column {name} of the {view} is {columns[name]}, not {kind}")
        found.append(name)
    return found


def arrow_schema(view: str, fields: list[tuple[str, bool]]) -> Any:
    """Return a pyarrow.Schema for `fields`, (name, nullable)."""
    import pyarrow as pa

    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    numbers = pa.list_(pa.field("element", pa.int32()))
    topic = pa.struct([pa.field("topic", pa.string()), pa.field("partitions", numbers)])
    types = {
        "binary": pa.binary(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        _HEADERS: pa.list_(pa.field("element", pair)),
        _TOPIC_PARTITIONS: pa.list_(pa.field("element", topic)),
    }
    return pa.schema([pa.field(name, types[VIEWS[view][name]], nullable=nullable) for name, nullable in fields])
