"""Options of Spark's own Kafka source that this one does not have, and their equivalents here. pure"""

# In lower case -> what to do instead.
_INSTEAD = {
    "subscribe": "option topics names topics, separated by commas: ledger,audit-*",
    "subscribepattern": "option topics takes globs, separated by commas: ledger,audit-*",
    "assign": "options topics and partitions choose them: topics=ledger, partitions=0,2",
    "kafka.bootstrap.servers": "no broker is asked: .load(DIR) names the log directory",
    "kafka.isolation.level": "option isolation.level does that",
    "kafka.group.id": "no consumer group is needed: nothing but files is read",
    "groupidprefix": "no consumer group is needed: nothing but files is read",
    "includeheaders": "the column headers is always there; .schema(...) without it leaves it out",
    "startingoffsetsbytimestamp": "option startingTimestamp is one time for all partitions, in ms since 1970",
    "endingoffsetsbytimestamp": "option endingTimestamp is one time for all partitions, in ms since 1970",
    "startingoffsetsbytimestampstrategy": "a partition with nothing as late is read from its end",
    "maxrecordsperpartition": "tasks are cut by size: option minPartitions makes more of them",
    "minoffsetspertrigger": "option maxOffsetsPerTrigger and the trigger's interval shape micro-batches",
    "maxtriggerdelay": "option maxOffsetsPerTrigger and the trigger's interval shape micro-batches",
    "kafkaconsumer.polltimeoutms": "nothing is polled, files are read",
    "fetchoffset.numretries": "nothing is fetched, files are read",
    "fetchoffset.retryintervalms": "nothing is fetched, files are read",
}
# Options that a stream has and a batch read has not.
_STREAM_ONLY = {
    "maxoffsetspertrigger": "spark.readStream has it; spark.read takes what is in the files, .limit(N) takes a part"
}


def instead_of(name: str) -> str | None:
    """Return the equivalent of an option of Spark's Kafka source; None if that has no such option either."""
    key = name.lower()
    if key.startswith("kafka.") and key not in _INSTEAD:
        return "no broker is asked, so settings of Kafka's consumer mean nothing"
    return _INSTEAD.get(key) or _STREAM_ONLY.get(key)


def is_met(name: str, value: str) -> bool:
    """Whether the option asks for what this source does anyway, so that it is accepted."""
    key, word = name.lower(), value.strip().lower()
    return (key == "includeheaders" and word == "true") or (
        key == "startingoffsetsbytimestampstrategy" and word == "latest"
    )
