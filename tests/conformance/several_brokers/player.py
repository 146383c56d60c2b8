"""Plays scripts to three brokers and lists the answers, without what differs from run to run.

An answer is the reply as JSON, "closed" if the broker closed the connection, or "no answer". Error codes are names. A
time is "time", an id that a broker has drawn is "$P0", "$M0", "$T0" or "$S0" in the order of the replies, and a port is
the id of its broker. Of the metadata log only counts which brokers have it. The order of rows does not count, because
Kafka keeps none. Of an error's text only counts that there is one.

After a Produce and an EndTxn the player waits, so that the next request meets the records and markers at each replica.
"""

import json
from hashlib import sha256
from uuid import UUID

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode
from ottla.testkit.in_memory.wire import message
from tests.conformance.several_brokers.steps import (
    BROKERS,
    OFFSETS,
    STATES,
    describe_groups,
    describe_transactions,
    find,
    init,
)

CLOSED, NO_ANSWER = "closed", "no answer"
DRAWN = {"producer_id": "$P", "member_id": "$M", "leader": "$M", "topic_id": "$T", "session_id": "$S"}
TIMES = {"log_append_time_ms", "timestamp", "transaction_start_time_ms", "last_timestamp", "max_timestamp"}
NOT_COMPARED = {
    *("throttle_time_ms", "configs", "cluster_id", "authorized_operations", "rack"),
    *("client_host", "log_dir", "total_bytes", "usable_bytes"),
    *("listeners", "replica_directory_id", "last_fetch_timestamp", "last_caught_up_timestamp", "log_end_offset"),
}
"""Other tests compare the configs of topics and the rights of clients. The rest depends on the machine."""
IN_ANY_ORDER = {"isr_nodes", "offline_replicas"}
CHANGES = {
    *(ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS, ApiKey.ALTER_CONFIGS),
    *(ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS),
}
OWN_ROWS = {"LIST_GROUPS": "groups", "LIST_TRANSACTIONS": "transaction_states"}
OWN_NAMES = ("group_id", "transactional_id")
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name, ErrorCode.CONCURRENT_TRANSACTIONS.name}
BYTES = {"metadata", "assignment"}
TRIES = 200


class Player:
    """A player of one script, whose names begin with a prefix of its own."""

    def __init__(self, cluster, name):
        self._cluster = cluster
        self._prefix = f"s{sha256(name.encode()).hexdigest()[:10]}-"
        self._drawn = {}
        self._has_written = False

    def answer(self, step):
        """Do a step and return its answer; None for a change."""
        if "do" not in step:
            return self._ask(step)
        if step["do"] == "move":
            self._cluster.move(self._render(step["topic"]), 0, step["to"])
        else:
            getattr(self._cluster, step["do"])(step["id"])
        self.wait_for_coordinators()
        return None

    def wait_for_coordinators(self):
        """Wait until the leaders of the coordinators' partitions coordinate: brokers know the leaders before that."""
        running = min(self._cluster.running)
        for key_type, look in enumerate((describe_groups, describe_transactions)):
            found = self._ask(find(running, 2, key_type))
            for _ in range(TRIES if found["error_code"] == "NONE" else 0):
                if "NOT_COORDINATOR" not in list_errors(self._ask(look(found["node_id"]))):
                    break
                self._cluster.wait()

    def _ask(self, step):
        api = ApiKey[step["api"]]
        if self._has_written and api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
            self._cluster.wait_for_replicas()
            self._has_written = False
        for _ in range(TRIES):
            request = message(api, step["version"], **self._render(step["fields"]))
            try:
                reply = self._cluster.send(step["at"], request, step["version"])
            except TimeoutError:
                return NO_ANSWER
            except ConnectionError:
                return CLOSED
            if reply is None:
                return NO_ANSWER
            for directory in reply.results if api is ApiKey.DESCRIBE_LOG_DIRS else ():
                self._name_drawn(directory.log_dir, "$L")
            answer = self._name(reply.to_dict(json=False))
            if api is ApiKey.DESCRIBE_QUORUM:
                _forget_log(answer)
            if NOT_YET.isdisjoint(list_errors(answer)):
                break
            self._cluster.wait()
        if api in (ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID) and answer["error_code"] == "NONE":
            self._await_markers(step["at"], request.transactional_id)
        self._has_written |= api in (ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS)
        if api in CHANGES:
            self._cluster.settle()
        if rows := OWN_ROWS.get(step["api"]):
            answer[rows] = [row for row in answer[rows] if any(str(row.get(key)).startswith("~") for key in OWN_NAMES)]
        return answer

    def _await_markers(self, at, transactional_id):
        """Wait until the transaction is complete: its markers are written after the answer."""
        asked = message(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id] * bool(transactional_id))
        for _ in range(TRIES):
            rows = self._cluster.send(at, asked, 0).transaction_states
            if not any(row.transaction_state.startswith("Prepare") for row in rows):
                break
            self._cluster.wait()

    def _render(self, value, name=None):
        if name == "records":
            return self._build_batch(**value)
        if isinstance(value, dict):
            return {key: self._render(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [self._render(each) for each in value]
        if not isinstance(value, str):
            return value
        if name in BYTES:
            return value.encode()
        if value.startswith("$"):
            return next(real for (_, real), token in self._drawn.items() if token == value)
        if name == "topic_id":
            return UUID(value)
        return value.replace("~", self._prefix)

    def _build_batch(self, count, producer_id=-1, **fields):
        records = [(b"k", b"v")] * count
        return bytes(
            build_batch(records, timestamp_ms=self._cluster.now_ms(), producer_id=self._render(producer_id), **fields)
        )

    def _name(self, value, name=""):
        if isinstance(value, dict):
            return {key: self._name(each, key) for key, each in value.items() if key not in NOT_COMPARED}
        if isinstance(value, list | tuple | set):
            return self._name_all([*value], name)
        return self._name_one(value, name)

    def _name_all(self, values, name):
        named = [self._name(each) for each in values]
        if name in IN_ANY_ORDER:
            return sorted(named)
        return sorted(named, key=json.dumps) if named and isinstance(named[0], dict) else named

    def _name_one(self, value, name):
        if name.endswith("error_code"):
            return ErrorCode(value).name
        if name == "records":
            return [
                [header.base_offset, header.partition_leader_epoch, header.record_count, header.is_control]
                for _, header in iter_batches(bytes(value or b""))
            ]
        if name == "error_message":
            return value and "text"
        if name in DRAWN:
            return self._name_drawn(value, DRAWN[name])
        if name in TIMES:
            return value if value is None or value < 0 else "time"
        if name == "port":
            return f"port of {self._cluster.name_port(value)}" if value > 0 else value
        if name == "controller_id":
            return "a broker" if value in BROKERS else value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value).decode()
        return value.replace(self._prefix, "~") if isinstance(value, str) else value

    def _name_drawn(self, value, kind):
        if value in (None, "", 0, UUID(int=0)) or (isinstance(value, int) and value < 0):
            return value if value is None or isinstance(value, int | str) else None
        if (kind, value) not in self._drawn:
            self._drawn[kind, value] = f"{kind}{sum(known == kind for known, _ in self._drawn)}"
        return self._drawn[kind, value]


def _forget_log(answer):
    """Remove the epoch and the end of the metadata log from the answer about its quorum."""
    for topic in answer["topics"]:
        for row in topic["partitions"]:
            del row["leader_epoch"], row["high_watermark"]


def list_errors(answer):
    """Return the names of all errors of an answer, and NONE."""
    if isinstance(answer, dict):
        own = {value for key, value in answer.items() if key.endswith("error_code")}
        return own.union(*map(list_errors, answer.values()))
    return set().union(*map(list_errors, answer)) if isinstance(answer, list) else set()


def play(cluster, script):
    """Return the answers of three brokers to the requests of a script."""
    for node_id in BROKERS:
        if node_id not in cluster.running:
            cluster.start(node_id)
    for topic in (OFFSETS, STATES):
        cluster.move(topic, 0, 1)
    cluster.hang_up()
    player = Player(cluster, script.name)
    player.wait_for_coordinators()
    return _answer_all(player, script)


def play_alone(cluster, script):
    """Return the answers of one broker to the requests of a script, which needs no coordinator."""
    cluster.hang_up()
    return _answer_all(Player(cluster, script.name), script)


def _answer_all(player, script):
    answers = []
    for number, step in enumerate(script.steps):
        try:
            answers.append(player.answer(step))
        except Exception as error:
            error.add_note(f"step {number} of {script.name!r}: {step}")
            raise
    return answers


def make_coordinators(cluster):
    """Create the topics of the coordinators, and wait until they answer."""
    player = Player(cluster, "coordinators")
    for key_type in (0, 1):
        for _ in range(TRIES):
            if player.answer(find(1, 2, key_type))["error_code"] == "NONE":
                break
            cluster.wait()
    cluster.settle()
    player.wait_for_coordinators()
    # The first producer id is 0, which stands for none in answers.
    assert "NONE" in [player.answer(init(node_id))["error_code"] for node_id in BROKERS]
