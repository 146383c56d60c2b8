"""Common parts of the steps of a script: one connection, names, requests that wait until a broker is ready."""

import time

from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

# The broker is still getting ready: not an answer to the question.
NOT_YET = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
GIVE_UP_S = 20.0
# Stand in a request for what no message object can hold, see `play.BluntConnection`.
NULL, NOT_UTF8 = "<<null>>", "<<utf8>>"


class Asker:
    """Names of topics, ids and groups begin with the prefix of the script."""

    def __init__(self, connect, prefix, answers, handles):
        self._connect, self._connection = connect, connect()
        self._prefix = self._topic = prefix
        self._answers, self._handles = answers, handles

    def _name(self, letter):
        """A transactional id or group of the script; null and empty stay what they are."""
        return f"{self._prefix}-{letter}" if letter and letter != NULL else letter

    def _place(self, partition):
        return (self._topic, partition) if isinstance(partition, int) else tuple(partition)

    def _topics(self, partitions):
        """{topic: partition numbers}."""
        topics = {}
        for topic, index in map(self._place, partitions):
            topics.setdefault(topic, []).append(index)
        return topics

    def _row(self, row):
        """The fields that say who asks."""
        handle = self._handles[row["who"]]
        return {"producer_id": handle.producer_id, "producer_epoch": handle.epoch}

    def _ask(self, api_key, version, errors, **fields):
        """The response, once none of its `errors(response)` says that the broker is not ready."""
        request = codec.request_class(api_key)(**fields)
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            response = self._connection.send(request, version)
            if NOT_YET.isdisjoint(errors(response)) or time.monotonic() > deadline:
                return response
            time.sleep(0.02)


def code(row):
    return ErrorCode(row.error_code).name


def own_error(reply):
    return {reply.error_code}


def partition_rows(reply):
    return [row for topic in reply.topics for row in topic.partitions]
