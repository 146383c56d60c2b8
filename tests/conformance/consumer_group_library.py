"""All scripts of consumer groups, and the answers of Kafka: `python consumer_group_library.py [SCRIPT ...]`.

As a program it sends all scripts or some to Apache Kafka and records its answers (needs Java, Maven).
"""

import gzip
import json
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from consumer_group_id_scripts import SCRIPTS as ID_SCRIPTS
from consumer_group_migration_scripts import SCRIPTS as MIGRATION_SCRIPTS
from consumer_group_other_scripts import SCRIPTS as OTHER_SCRIPTS
from consumer_group_policy_scripts import POLICIES
from consumer_group_regex_scripts import SCRIPTS as REGEX_SCRIPTS
from consumer_group_requests import TOPIC_CHANGE_S, ConsumerGroupRequests, topics_of
from consumer_group_scripts import SCRIPTS as HEARTBEAT_SCRIPTS
from consumer_group_walks import SCRIPTS as WALKS
from group_requests import TIMEOUT_S, part, request
from targets import ApacheKafka

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.wire.connection import BlockingConnection

SCRIPTS = {
    script.__name__: script
    for script in (
        *HEARTBEAT_SCRIPTS,
        *OTHER_SCRIPTS,
        *ID_SCRIPTS,
        *REGEX_SCRIPTS,
        *WALKS,
        *MIGRATION_SCRIPTS,
        *(script for scripts in POLICIES.values() for script in scripts),
    )
}
RECORDING = Path(__file__).parents[1] / "data" / "differential" / "kafka-4.3.1-consumer-groups.jsonl.gz"
# Each group epoch gets its assignment at once.
OVERRIDES = {"auto.create.topics.enable": "false", "group.consumer.assignment.interval.ms": "0"}
OF_POLICIES = {policy: OVERRIDES | {"group.consumer.migration.policy": policy} for policy in POLICIES}
# What Ottla answers otherwise than Kafka (docs/decisions/differences.md): its answers by the number of the step.
_NO_MEMBER = "UNKNOWN_MEMBER_ID"
_NO_TOPICS = "a_member_joins_without_topics_while_an_assignment_is_due"
_NO_TOPICS_TOPIC = topics_of(_NO_TOPICS.replace("_", "-"))[0]
_ALL = [[_NO_TOPICS_TOPIC, [0, 1, 2, 3, 4, 5]]]
KEPT = {
    _NO_TOPICS: {
        4: ["m1 heartbeat v1 epoch 2", "NONE", None, "m1", 4, 5000, None],
        5: [
            *("describe consumer group v1", "NONE", None, _NO_TOPICS.replace("_", "-"), "Stable", 4, 4, "range"),
            [
                ["m1", "", "", 4, "client", "/127.0.0.1", [_NO_TOPICS_TOPIC], "", _ALL, _ALL, 1],
                ["m3", "", "", 4, "client", "/127.0.0.1", [], "", [], [], 1],
            ],
        ],
    },
    "members_fetch_with_their_epochs": {
        15: ["fetch v9 as None 3", _NO_MEMBER, []],
        16: ["fetch v9 as None 0", _NO_MEMBER, []],
    },
    "fetches_from_groups_without_members": {16: ["fetch v9 as None 2", _NO_MEMBER, []]},
}

CHANGED_IN_4_4_0 = {
    "A member that names another assignor than before, or names one when it joins, begins a group epoch.": (
        "a_member_changes_its_expression a_member_changes_what_it_says_of_itself an_expression_matches_nothing "
        "a_static_consumer_takes_the_place_of_a_classic_member an_expression_matches_whole_names "
        "a_static_member_changes_its_protocol_and_back_without_an_epoch a_static_member_returns_with_its_expression "
        "expressions_that_are_invalid members_share_an_expression subscribe_with_a_regular_expression "
        "topics_that_match_come_and_go"
    ),
    "When the last member leaves, the epoch of the target assignment becomes that of the group, without a time.": (
        "a_member_gives_its_instance_id_later a_static_member_returns_with_another_subscription "
        "an_administrator_removes_everybody an_administrator_removes_static_members "
        "classic_clients_commit_to_a_group_that_was_of_consumers classic_clients_of_an_empty_group "
        "commits_to_a_group_without_members delete_groups_and_offsets epochs_of_a_member groups_that_do_not_migrate "
        "groups_that_only_upgrade looks_at_a_group range_with_one_two_and_three_members "
        "upgrades_with_subscriptions_that_work walk_8"
    ),
    "A classic member whose subscription cannot be read is refused with INCONSISTENT_GROUP_PROTOCOL.": (
        "classic_clients_of_a_group_with_members classic_members_join_a_group_of_consumers"
    ),
    "A commit in a transaction stores the id of the topic in every version.": "commits_store_the_id_of_the_topic",
    "The message of a config out of its range names the range.": "configs_of_a_group_have_bounds",
}
"""The reasons why Kafka 4.4.0 answers scripts in another way than 4.3.1, with these scripts."""


def overrides_of(name):
    """The options of the broker that plays a script."""
    policies = (policy for policy, scripts in POLICIES.items() if SCRIPTS[name] in scripts)
    return OF_POLICIES.get(next(policies, ""), OVERRIDES)


def play_all(broker, names):
    """{script name: answers, as JSON values} of a running broker that has not been asked yet."""
    groups = {name: name.replace("_", "-") for name in names}
    _create_topics(broker.bootstrap, groups.values())
    return {name: _play(broker.bootstrap, SCRIPTS[name], group) for name, group in groups.items()}


def _play(bootstrap, script, group):
    requests = ConsumerGroupRequests(bootstrap, group)
    try:
        script(requests)
    except Exception as error:
        error.add_note(f"{group} after {requests.lines[-5:]}")
        raise
    finally:
        requests.close()
    return json.loads(json.dumps(requests.lines, default=repr))


def _create_topics(bootstrap, groups):
    host, _, port = bootstrap.rpartition(":")
    rows = [
        part(ApiKey.CREATE_TOPICS, "CreatableTopic", name=name, num_partitions=count, replication_factor=1)
        for group in groups
        for name, count in zip(topics_of(group), (6, 2), strict=True)
    ]
    with BlockingConnection(host, int(port), timeout_s=TIMEOUT_S) as connection:
        reply = connection.send(request(ApiKey.CREATE_TOPICS, topics=rows, timeout_ms=10_000), 5)
        assert {row.error_code for row in reply.topics} == {ErrorCode.NONE}
        asking = [
            (request(ApiKey.FIND_COORDINATOR, key_type=kind, coordinator_keys=["g"]), 4, "coordinators")
            for kind in (0, 1)
        ]
        deadline = time.monotonic() + TIMEOUT_S
        for ask, version, field in asking:
            while getattr(connection.send(ask, version), field)[0].error_code:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        while connection.send(request(ApiKey.LIST_GROUPS), 3).error_code:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    time.sleep(TOPIC_CHANGE_S)


@cache
def recording():
    """{script name: answers}: what Kafka said when it was asked last."""
    with gzip.open(RECORDING, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["script"]: row["answers"] for row in rows}


def main(wanted):
    """Record the answers to these scripts, or to all if none is named."""
    answers = recording() if wanted else {}
    for overrides in (OVERRIDES, *OF_POLICIES.values()):
        names = sorted(name for name in wanted or SCRIPTS if overrides_of(name) is overrides)
        if not names:
            continue
        with tempfile.TemporaryDirectory() as directory:
            kafka = ApacheKafka(Path(directory) / "kafka", overrides).start()
            try:
                answers |= play_all(kafka, names)
            finally:
                kafka.stop()
    rows = [{"script": name, "answers": answers[name]} for name in SCRIPTS]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    RECORDING.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(rows)} scripts, {sum(map(len, answers.values()))} answers")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
