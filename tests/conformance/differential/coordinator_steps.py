"""Steps that ask the coordinator of a transactional id."""

import time

from differential.asking import GIVE_UP_S, Asker, code, own_error

from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec

INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 22, 24, 25, 26
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
UNSETTLED = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
SETTLE_S = 5.0
INIT_WITH_ONGOING = 6
END_TXN_WITH_PRODUCER = 5
PIPELINE = 256
LAST_ASKED = 100  # if the broker can raise an epoch


class CoordinatorSteps(Asker):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._stuck = set()

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
            **step.get("flags", {}),
        }

    def _init(self, step):
        fields = self._init_fields(step)
        reply = self._ask(INIT_PRODUCER_ID, step["version"], own_error, **fields)
        if reply.error_code == ErrorCode.NONE:
            self._handles.give(step["who"], reply.producer_id, reply.producer_epoch, step["id"])
        answer = [code(reply), self._answers.producer(reply.producer_id), reply.producer_epoch]
        if step["version"] >= INIT_WITH_ONGOING:
            answer += [reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch]
        if step["settle"] and step["id"] and reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return answer + self._settle(step["id"])
        return answer

    def _init_many(self, step):
        request = codec.request_class(INIT_PRODUCER_ID)(**self._init_fields(step))
        times = step["times"]
        if self._raise_epoch is not None:
            assert self._connection.send(request, 4).error_code == ErrorCode.NONE
            self._raise_epoch(self._name(step["id"]), times - 1 - LAST_ASKED)
            times = LAST_ASKED
        asked, last = 0, None
        for answered in range(times):
            while asked < times and asked - answered < PIPELINE:
                self._connection.post(request, 4)
                asked += 1
            last = self._connection.receive()
        self._handles.give(step["who"], last.producer_id, last.producer_epoch, step["id"])
        return [code(last), self._answers.producer(last.producer_id), last.producer_epoch]

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
        return code(self._ask(ADD_OFFSETS, step["version"], own_error, **fields, **self._row(step)))

    def _end(self, step):
        id = self._handles[step["who"]].id
        fields = {"transactional_id": self._name(id), "committed": step["commit"]}
        reply = self._ask(END_TXN, step["version"], own_error, **fields, **self._row(step))
        answer = [code(reply)]
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
            lambda reply: {row.partition_error_code for result in _results(reply) for row in _rows_of(result)},
            transactions=transactions,
        )
        results = [sorted([row.partition_index, _joining_code(row)] for row in _rows_of(r)) for r in _results(reply)]
        return [code(reply), results]

    def _settle(self, id):
        return self._until(id, UNSETTLED, SETTLE_S)

    def _await_timeout(self, step):
        return self._until(step["id"], UNSETTLED | {"Ongoing"}, GIVE_UP_S)

    def _until(self, id, leaving, limit_s):
        """Wait until the transactional id is in none of these states. Return [the state] if it stays there."""
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
        if len(names) == 1:
            # What was not UTF-8 comes back as something else.
            return reply.transaction_states
        rows = {row.transactional_id: row for row in reply.transaction_states}
        return [rows[name] for name in names]

    def _describe_transactions(self, step):
        return [self._answers.transaction(row) for row in self._states(step["ids"])]

    def _list_transactions(self, step):
        filters = {
            "state_filters": step["states"],
            "producer_id_filters": [self._handles[step["who"]].producer_id],
        }
        reply = self._ask(LIST_TRANSACTIONS, 0, own_error, **filters)
        rows = [[self._answers.producer(row.producer_id), row.transaction_state] for row in reply.transaction_states]
        return [code(reply), sorted(reply.unknown_state_filters), sorted(rows)]


def _results(reply):
    """The transactions of an answer to brokers."""
    return reply.results_by_transaction or ()


def _rows_of(result):
    return [row for topic in result.topic_results for row in topic.results_by_partition]


def _joining_code(row):
    return ErrorCode(row.partition_error_code).name


def _add_rows(reply):
    return [row for topic in reply.results_by_topic_v3_and_below for row in topic.results_by_partition]
