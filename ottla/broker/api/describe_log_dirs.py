"""DescribeLogDirs 1-4: the one log directory, and the sizes of the partitions in it. free

Version notes: 2 is flexible; 3 adds an error of the whole answer; 4 the size of the volume and what is left of it
(KIP-827). Nothing lags behind and nothing moves between directories: there is one broker with one directory.
"""

from ottla.broker.api.context import ROWS_PER_TURN, Broker, Reply, Request
from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Reply:
    """Describe the directory with the partitions asked for; all of them if the request names no list."""
    version, body = request.api_version, request.body
    response = codec.response_class(ApiKey.DESCRIBE_LOG_DIRS)
    result = response.DescribeLogDirsResult
    wanted: dict[str, dict[int, None]] = {}
    if body.topics is None:
        wanted = {name: dict.fromkeys(range(topic.partition_count)) for name, topic in broker.cluster.topics.items()}
    else:
        for asked in body.topics:
            wanted.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
    topics: list[Reply] = []
    done = 0
    for name, indexes in wanted.items():
        rows: list[Reply] = []
        for index in indexes:
            done += 1
            if done % ROWS_PER_TURN == 0:
                await broker.turns.pause()
            partition = broker.cluster.partition(name, index)
            if partition is not None and partition.offline is None:
                rows.append(
                    result.DescribeLogDirsTopic.DescribeLogDirsPartition(
                        version=version,
                        partition_index=index,
                        partition_size=partition.size_bytes,
                        offset_lag=0,
                        is_future_key=False,
                    )
                )
        if rows:
            topics.append(result.DescribeLogDirsTopic(version=version, name=name, partitions=rows))
    return response(
        version=version, throttle_time_ms=0, error_code=ErrorCode.NONE, results=[_directory(broker, version, topics)]
    )


def _directory(broker: Broker, version: int, topics: list[Reply]) -> Reply:
    result = codec.response_class(ApiKey.DESCRIBE_LOG_DIRS).DescribeLogDirsResult
    volume = broker.logs.volume()
    if volume is None:
        error = ErrorCode.KAFKA_STORAGE_ERROR
        return result(version=version, error_code=error, log_dir=broker.logs.directory, topics=[])
    return result(
        version=version,
        error_code=ErrorCode.NONE,
        log_dir=volume.path,
        topics=topics,
        total_bytes=volume.total_bytes,
        usable_bytes=volume.usable_bytes,
    )
