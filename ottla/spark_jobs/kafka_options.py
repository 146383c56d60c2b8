"""Options of Spark's own Kafka source that this one does not have, and their equivalents here. pure"""

# Option in lower case -> the advice to give instead.
_INSTEAD = {
    "subscribe": "option topics names topics, separated by commas: ledger,audit-*",
    "subscribepattern": "option topics takes globs, separated by commas: ledger,audit-*",
    "assign": "options topics and partitions select partitions: topics=ledger, partitions=0,2",
    "kafka.bootstrap.servers": "no broker is used: .load(DIR) names the log directory",
    "kafka.isolation.level": "use option isolation.level",
    "kafka.group.id": "no consumer group is needed: only files are read",
    "groupidprefix": "no consumer group is needed: only files are read",
    "includeheaders": "the column headers is always there; .schema(...) without it leaves it out",
    "startingoffsetsbytimestamp": "option startingTimestamp is one time for all partitions, in ms since 1970",
    "endingoffsetsbytimestamp": "option endingTimestamp is one time for all partitions, in ms since 1970",
    "startingoffsetsbytimestampstrategy": "a partition without such a late record is read from its end",
    "maxrecordsperpartition": "tasks are divided by size: option minPartitions makes more of them",
    "minoffsetspertrigger": "use option maxOffsetsPerTrigger and the interval of the trigger",
    "maxtriggerdelay": "use option maxOffsetsPerTrigger and the interval of the trigger",
    "kafkaconsumer.polltimeoutms": "no consumer polls: only files are read",
    "fetchoffset.numretries": "no broker is used: only files are read",
    "fetchoffset.retryintervalms": "no broker is used: only files are read",
}
# Options of a stream that a batch read does not have.
_STREAM_ONLY = {"maxoffsetspertrigger": "only spark.readStream has it; spark.read reads everything, .limit(N) a part"}


def instead_of(name: str) -> str | None:
    """Return the equivalent of an option of Spark's Kafka source; None if that source lacks the option too."""
    key = name.lower()
    if key.startswith("kafka.") and key not in _INSTEAD:
        return "no broker is used, so settings of Kafka's consumer have no effect"
    return _INSTEAD.get(key) or _STREAM_ONLY.get(key)


def is_met(name: str, value: str) -> bool:
    """Return whether the option requests the fixed behaviour of this source, so that it is accepted."""
    key, word = name.lower(), value.strip().lower()
    return (key == "includeheaders" and word == "true") or (
        key == "startingoffsetsbytimestampstrategy" and word == "latest"
    )
