"""Plays a script to a broker over one raw connection and lists the answers, free of what differs from run to run.

Answers are JSON values. Error codes are names. A producer id is "P0" when it is the first one that the script saw,
"P1" the second; "X..." are foreign ones. A timestamp is "T+n" (the script's own clock: one millisecond a record) or
"clock" (the broker's). Topics, transactional ids and groups are the script's own and not part of an answer.
"""

import time
from uuid import UUID

from differential.producers import Handles
from differential.reading import PADDING, Answers, records_of

from ottla.protocol import codec
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH = 0, 1, 2, 3, 9
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, WRITE_MARKERS, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 27, 28
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
# The broker is still getting ready: not an answer to the question.
NOT_YET = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
UNSETTLED = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
GIVE_UP_S = 20.0
SETTLE_S = 5.0
END_TXN_WITH_PRODUCER, PRODUCE_BY_ID = 5, 13
NO_ANSWER, CLOSED = "no answer", "closed"
PIPELINE = 256


class Player:
    """One script on one connection at a time. Names of topics, ids and groups begin with `prefix`."""

    def __init__(self, connect, script, prefix):
        self._connect, self._connection = connect, connect()
        self._script, self._prefix = script, prefix
        self._topic = prefix
        self._handles = Handles()
        self._answers = Answers()
        self._stuck = set()

    def play(self):
        """The answers, one for each step. To hang or to hang up is an answer too."""
        answers = [self._answer(step) for step in self._script.all_steps]
        self._connection.close()
        return answers

    def _answer(self, step):
        try:
            return getattr(self, "_" + step["op"])(step)
        except TimeoutError:
            answer = NO_ANSWER
        except ConnectionError:
            answer = CLOSED
        self._connection.close()
        self._connection = self._connect()
        return answer

    # --- names ----------------------------------------------------------------------------------------------------

    def _name(self, letter):
        """A transactional id or group of the script; null and empty stay what they are."""
        return f"{self._prefix}-{letter}" if letter else letter

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

    # --- the coordinator ------------------------------------------------------------------------------------------

    def _init_fields(self, step):
        expected = step.get("expected")
        if isinstance(expected, str):
            handle = self._handles[expected]
            expected = [handle.producer_id, handle.epoch]
        producer_id, epoch = expected or (-1, -1)
        return {
            "transactional_id": self._name(step["id"]),
            "transaction_timeout_ms": step.get("timeout_ms", 60_000),
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }

    def _init(self, step):
        fields = self._init_fields(step)
        reply = self._ask(INIT_PRODUCER_ID, step["version"], _own_error, **fields)
        if reply.error_code == ErrorCode.NONE:
            self._handles.give(step["who"], reply.producer_id, reply.producer_epoch, step["id"])
        answer = [_code(reply), self._answers.producer(reply.producer_id), reply.producer_epoch]
        if step["settle"] and step["id"] and reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return answer + self._settle(step["id"])
        return answer

    def _init_many(self, step):
        request = codec.request_class(INIT_PRODUCER_ID)(**self._init_fields(step))
        asked, last = 0, None
        for answered in range(step["times"]):
            while asked < step["times"] and asked - answered < PIPELINE:
                self._connection.post(request, 4)
                asked += 1
            last = self._connection.receive()
        self._handles.give(step["who"], last.producer_id, last.producer_epoch, step["id"])
        return [_code(last), self._answers.producer(last.producer_id), last.producer_epoch]

    def _foreign(self, step):
        self._handles.give(step["who"], self._answers.foreign(step["number"]), step["epoch"], step["id"])
        return None

    def _alias(self, step):
        self._handles.alias(step["who"], step["of"], step["epoch"], step["producer_id"], step["id"])
        return None

    def _add(self, step):
        topic_class = codec.request_class(ADD_PARTITIONS).AddPartitionsToTxnTopic
        topics = [topic_class(name=name, partitions=p) for name, p in self._topics(step["partitions"]).items()]
        asker = {f"v3_and_below_{field}": value for field, value in self._row(step).items()}
        reply = self._ask(
            ADD_PARTITIONS,
            step["version"],
            lambda reply: {row.partition_error_code for row in _add_rows(reply)},
            v3_and_below_transactional_id=self._name(self._handles[step["who"]].id),
            v3_and_below_topics=topics,
            **asker,
        )
        return sorted([row.partition_index, ErrorCode(row.partition_error_code).name] for row in _add_rows(reply))

    def _add_offsets(self, step):
        fields = {"transactional_id": self._name(self._handles[step["who"]].id), "group_id": self._name(step["group"])}
        return _code(self._ask(ADD_OFFSETS, step["version"], _own_error, **fields, **self._row(step)))

    def _end(self, step):
        id = self._handles[step["who"]].id
        fields = {"transactional_id": self._name(id), "committed": step["commit"]}
        reply = self._ask(END_TXN, step["version"], _own_error, **fields, **self._row(step))
        answer = [_code(reply)]
        if step["version"] >= END_TXN_WITH_PRODUCER:
            answer += [self._answers.producer(reply.producer_id), reply.producer_epoch]
            if reply.error_code == ErrorCode.NONE:
                self._handles[step["who"]].go_on(reply.producer_id, reply.producer_epoch)
        if step["settle"] and reply.error_code == ErrorCode.NONE:
            return answer + self._settle(id)
        return answer

    def _add_many(self, step):
        transaction_class = codec.request_class(ADD_PARTITIONS).AddPartitionsToTxnTransaction
        topic_class = transaction_class.AddPartitionsToTxnTopic
        transactions = [
            transaction_class(
                **self._row(row),
                transactional_id=self._name(self._handles[row["who"]].id),
                verify_only=row["verify"],
                topics=[topic_class(name=n, partitions=p) for n, p in self._topics(row["partitions"]).items()],
            )
            for row in step["rows"]
        ]
        reply = self._ask(
            ADD_PARTITIONS,
            step["version"],
            lambda reply: {row.partition_error_code for result in _results(reply) for row in _joined(result)},
            transactions=transactions,
        )
        results = [sorted([row.partition_index, _joining_code(row)] for row in _joined(r)) for r in _results(reply)]
        return [_code(reply), results]

    def _settle(self, id):
        return self._until(id, UNSETTLED, SETTLE_S)

    def _await_timeout(self, step):
        return self._until(step["id"], UNSETTLED | {"Ongoing"}, GIVE_UP_S)

    def _until(self, id, leaving, limit_s):
        """Wait until the transactional id is in none of these states; [the state] where it stays for good."""
        deadline = time.monotonic() + limit_s
        while (state := self._states([id])[0].transaction_state) in leaving:
            if id in self._stuck or time.monotonic() > deadline:
                self._stuck.add(id)
                return [state]
            time.sleep(0.002)
        return []

    def _pause(self, step):
        time.sleep(step["milliseconds"] / 1000)

    def _states(self, ids):
        names = [self._name(id) for id in ids]
        fields = {"transactional_ids": names}
        reply = self._ask(
            DESCRIBE_TRANSACTIONS, 0, lambda r: {row.error_code for row in r.transaction_states}, **fields
        )
        rows = {row.transactional_id: row for row in reply.transaction_states}
        return [rows[name] for name in names]

    def _describe_transactions(self, step):
        return [self._answers.transaction(row) for row in self._states(step["ids"])]

    def _list_transactions(self, step):
        filters = {
            "state_filters": step["states"],
            "producer_id_filters": [self._handles[step["who"]].producer_id],
        }
        reply = self._ask(LIST_TRANSACTIONS, 0, _own_error, **filters)
        rows = [[self._answers.producer(row.producer_id), row.transaction_state] for row in reply.transaction_states]
        return [_code(reply), sorted(reply.unknown_state_filters), sorted(rows)]

    # --- the partitions -------------------------------------------------------------------------------------------

    def _produce(self, step):
        handle = self._handles[step["who"]]
        first, n = handle.sequence(step)
        transactional = bool(handle.id) if step["txn"] is None else step["txn"]
        batch = build_batch(
            [(b"k", f"{step['who']}{first}+{i}".ljust(step["size"], PADDING).encode()) for i in range(n)],
            timestamp_ms=self._answers.next_timestamp(),
            producer_id=handle.producer_id,
            producer_epoch=handle.epoch,
            base_sequence=first,
            transactional=transactional,
        )
        topic, index = self._place(step["partition"])
        data = codec.request_class(PRODUCE).TopicProduceData
        reply = self._ask(
            PRODUCE,
            step["version"],
            lambda reply: {reply.responses[0].partition_responses[0].error_code},
            transactional_id=self._name(handle.id) if transactional and step["name"] else None,
            acks=step["acks"],
            timeout_ms=10_000,
            topic_data=[
                data(
                    partition_data=[data.PartitionProduceData(index=index, records=bytes(batch))],
                    **({"topic_id": self._topic_id(topic)} if step["version"] >= PRODUCE_BY_ID else {"name": topic}),
                )
            ],
        )
        row = reply.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE:
            handle.sent(step, first, n)
        start = row.log_start_offset if step["version"] >= 5 else None
        return [_code(row), row.base_offset, self._answers.timestamp(row.log_append_time_ms), start]

    def _topic_id(self, name):
        """The zero id for a topic that does not exist."""
        request = codec.request_class(METADATA)
        asked = [request.MetadataRequestTopic(name=name)]
        reply = self._connection.send(request(topics=asked, allow_auto_topic_creation=False), 12)
        return reply.topics[0].topic_id or UUID(int=0)

    def _write_markers(self, step):
        marker_class = codec.request_class(WRITE_MARKERS).WritableTxnMarker
        topic_class = marker_class.WritableTxnMarkerTopic
        markers = [
            marker_class(
                **self._row(row),
                transaction_result=row["commit"],
                coordinator_epoch=row["coordinator_epoch"],
                **({"transaction_version": row["generation"]} if "generation" in row else {}),
                topics=[topic_class(name=n, partition_indexes=p) for n, p in self._topics(row["partitions"]).items()],
            )
            for row in step["markers"]
        ]
        reply = self._connection.send(codec.request_class(WRITE_MARKERS)(markers=markers), step.get("version", 1))
        return sorted(
            [
                self._answers.producer(row.producer_id),
                sorted([each.partition_index, _code(each)] for topic in row.topics for each in topic.partitions),
            ]
            for row in reply.markers
        )

    def _fetch(self, step):
        topic_class = codec.request_class(FETCH).FetchTopic
        topic, index = self._place(step["partition"])
        asked = topic_class.FetchPartition(
            partition=index, fetch_offset=step["offset"], log_start_offset=-1, partition_max_bytes=step["max_bytes"]
        )
        reply = self._ask(
            FETCH,
            step["version"],
            lambda reply: {reply.responses[0].partitions[0].error_code},
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=step["isolation"],
            topics=[topic_class(topic=topic, partitions=[asked])],
            forgotten_topics_data=[],
            rack_id="",
        )
        row = reply.responses[0].partitions[0]
        aborted = row.aborted_transactions
        return {
            "error": _code(row),
            "ends": [row.high_watermark, row.last_stable_offset, row.log_start_offset],
            "aborted": aborted and [[self._answers.producer(each.producer_id), each.first_offset] for each in aborted],
            "log": records_of(row.records, self._answers),
        }

    def _list_offsets(self, step):
        topic_class = codec.request_class(LIST_OFFSETS).ListOffsetsTopic
        topic, index = self._place(step["partition"])
        timestamp = step["timestamp"]
        asked = topic_class.ListOffsetsPartition(
            partition_index=index, timestamp=timestamp if timestamp < 0 else self._answers.clock_at(timestamp)
        )
        reply = self._ask(
            LIST_OFFSETS,
            step["version"],
            lambda reply: {reply.topics[0].partitions[0].error_code},
            replica_id=-1,
            isolation_level=step["isolation"],
            topics=[topic_class(name=topic, partitions=[asked])],
        )
        row = reply.topics[0].partitions[0]
        epoch = row.leader_epoch if step["version"] >= 4 else None
        return [_code(row), row.offset, self._answers.timestamp(row.timestamp), epoch]

    def _describe_producers(self, step):
        topic_class = codec.request_class(DESCRIBE_PRODUCERS).TopicRequest
        topics = [topic_class(name=n, partition_indexes=p) for n, p in self._topics(step["partitions"]).items()]
        reply = self._ask(DESCRIBE_PRODUCERS, 0, lambda r: {row.error_code for row in _partitions(r)}, topics=topics)
        rows = sorted(_partitions(reply), key=lambda row: row.partition_index)
        return [[row.partition_index, _code(row), self._answers.producers(row)] for row in rows]

    # --- the group ------------------------------------------------------------------------------------------------

    def _txn_offset_commit(self, step):
        topic_class = codec.request_class(TXN_OFFSET_COMMIT).TxnOffsetCommitRequestTopic
        rows = {}
        for partition, offset in step["offsets"]:
            topic, index = self._place(partition)
            row = topic_class.TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=step["leader_epoch"],
                committed_metadata=step["metadata"],
            )
            rows.setdefault(topic, []).append(row)
        reply = self._ask(
            TXN_OFFSET_COMMIT,
            step["version"],
            lambda reply: {row.error_code for row in _partitions(reply)},
            transactional_id=self._name(self._handles[step["who"]].id),
            group_id=self._name(step["group"]),
            generation_id=step["generation"],
            member_id=step["member"],
            group_instance_id=step["instance"],
            topics=[topic_class(name=name, partitions=partitions) for name, partitions in rows.items()],
            **self._row(step),
        )
        return sorted([row.partition_index, _code(row)] for row in _partitions(reply))

    def _offset_fetch(self, step):
        request_class = codec.request_class(OFFSET_FETCH)
        group, version, topics = self._name(step["group"]), step["version"], self._topics(step["partitions"])
        if version >= 8:
            group_class = request_class.OffsetFetchRequestGroup
            topic_class = group_class.OffsetFetchRequestTopics
            asked = [topic_class(name=name, partition_indexes=p) for name, p in topics.items()]
            fields = {"groups": [group_class(group_id=group, topics=asked)]}
        else:
            topic_class = request_class.OffsetFetchRequestTopic
            asked = [topic_class(name=name, partition_indexes=p) for name, p in topics.items()]
            fields = {"group_id": group, "topics": asked}
        body = _first_group if version >= 8 else _itself
        reply = body(
            self._ask(
                OFFSET_FETCH,
                version,
                lambda reply: {body(reply).error_code or 0, *(row.error_code for row in _partitions(body(reply)))},
                require_stable=step["stable"],
                **fields,
            )
        )
        rows = sorted(
            [row.partition_index, _code(row), row.committed_offset, row.committed_leader_epoch, row.metadata]
            for row in _partitions(reply)
        )
        return [ErrorCode(reply.error_code or 0).name, rows]


def _code(row):
    return ErrorCode(row.error_code).name


def _own_error(reply):
    return {reply.error_code}


def _partitions(reply):
    return [row for topic in reply.topics for row in topic.partitions]


def _results(reply):
    """The transactions of an answer to brokers."""
    return reply.results_by_transaction or ()


def _joined(result):
    return [row for topic in result.topic_results for row in topic.results_by_partition]


def _joining_code(row):
    return ErrorCode(row.partition_error_code).name


def _add_rows(reply):
    return [row for topic in reply.results_by_topic_v3_and_below for row in topic.results_by_partition]


def _first_group(reply):
    return reply.groups[0]


def _itself(reply):
    return reply
