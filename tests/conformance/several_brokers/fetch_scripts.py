"""Scripts of Fetch: topics by id, topics that are created again, and fetch sessions.

Sources: `FetchManager`, `FetchContext`, `FetchSession` and `KafkaApis.handleFetchRequest` of Kafka 4.3.1; KIP-227,
KIP-516, KIP-951.
"""

from ottla.protocol.api_keys import ApiKey as K
from tests.conformance.several_brokers.steps import (
    BROKERS,
    FOLLOWER,
    LEADER,
    LEDGER,
    STRANGER,
    Script,
    create,
    delete,
    delete_records,
    describe,
    fetch_row,
    fetch_rows,
    move,
    produce,
    start,
    stop,
    versions_of,
)

ORDERS = "~orders"
TWO = create([LEADER, FOLLOWER], [LEADER, FOLLOWER])
BY_ID = describe(LEADER, version=12)
UNKNOWN, ZERO = "00000000-0000-0000-0000-0000000000ff", None
ID_VERSIONS = range(13, 19)
SESSION_VERSIONS = (7, 11, 12, 13, 15, 18)


def scripts():
    return [*_by_id(), *_create_again(), *_sessions(), *_session_errors(), *_session_topics(), *_move_leaders()]


def _name(version):
    return "$T0" if version >= 13 else LEDGER


def _by_id():
    for version in ID_VERSIONS:
        asked = [
            [("$T0", fetch_row(), fetch_row(1))],
            [("$T0", fetch_row(7), fetch_row(-1))],
            [("$T0", fetch_row(0, 99), fetch_row(1, -1))],
            [(UNKNOWN, fetch_row())],
            [(UNKNOWN, fetch_row(), fetch_row(1))],
            [(ZERO, fetch_row())],
            [(ZERO, fetch_row(), fetch_row(1))],
            [("$T0", fetch_row()), (UNKNOWN, fetch_row(7)), (ZERO, fetch_row())],
            [("$T0", fetch_row(), fetch_row(0, 1))],
            [("$T0", fetch_row()), ("$T0", fetch_row(1))],
            [("$T0", fetch_row()), ("$T0", fetch_row(0, 99))],
            [("$T0",)],
            [(UNKNOWN,)],
            [],
        ]
        steps = [fetch_rows(LEADER, version, *topics) for topics in asked]
        yield Script(f"Fetch {version} by id", [TWO, BY_ID, produce(LEADER), produce(LEADER, partition=1), *steps])
    named = [
        [(LEDGER, fetch_row(), fetch_row(0, 1))],
        [(LEDGER, fetch_row()), ("~none", fetch_row()), (LEDGER, fetch_row(1))],
        [(LEDGER, fetch_row()), (LEDGER, fetch_row(0, 99))],
        [],
    ]
    steps = [fetch_rows(LEADER, version, *topics) for version in (4, 7, 12) for topics in named]
    yield Script("Fetch: rows that repeat", [TWO, produce(LEADER), *steps])
    described = [describe(at, version=version) for version in versions_of(K.METADATA) for at in BROKERS]
    yield Script("Metadata of a deleted topic", [TWO, BY_ID, delete(), *described])


def _create_again():
    both = [fetch_rows(LEADER, version, (each, fetch_row())) for version in ID_VERSIONS for each in ("$T0", "$T1")]
    yield Script(
        "Fetch of a topic that is created again",
        [
            *(TWO, BY_ID, produce(LEADER), delete()),
            *(fetch_rows(LEADER, version, (_name(version), fetch_row())) for version in (12, *ID_VERSIONS)),
            *(TWO, BY_ID, produce(LEADER, count=2), *both),
            *(fetch_rows(LEADER, version, ("$T0", fetch_row()), ("$T1", fetch_row(1))) for version in ID_VERSIONS),
        ],
    )
    for version in SESSION_VERSIONS:
        name = _name(version)
        steps = [
            *(TWO, BY_ID, produce(LEADER, count=3)),
            fetch_rows(LEADER, version, (name, fetch_row(0, 3), fetch_row(1)), session=(0, 0)),
            delete(),
            *(fetch_rows(LEADER, version, session=("$S0", epoch)) for epoch in (1, 2)),
            *(TWO, BY_ID, produce(LEADER)),
            *(fetch_rows(LEADER, version, session=("$S0", epoch)) for epoch in (3, 4)),
            fetch_rows(LEADER, version, (name, fetch_row(0, 1)), session=("$S0", 5)),
        ]
        if version >= 13:
            steps += [
                fetch_rows(LEADER, version, ("$T1", fetch_row(0)), session=("$S0", 6), forgotten=[("$T0", 0, 1)]),
                fetch_rows(LEADER, version, session=("$S0", 7)),
            ]
        yield Script(f"session {version}: the topic is created again", steps)


def _sessions():
    for version in SESSION_VERSIONS:
        name = _name(version)

        def go_on(epoch, *topics, version=version, **more):
            return fetch_rows(LEADER, version, *topics, session=("$S0", epoch), **more)

        yield Script(
            f"session {version}: news",
            [
                *(TWO, BY_ID, produce(LEADER)),
                fetch_rows(LEADER, version, (name, fetch_row(0), fetch_row(1)), session=(0, 0)),
                *(go_on(1), go_on(2, (name, fetch_row(0, 1))), go_on(3)),
                *(produce(LEADER, partition=1), go_on(4), go_on(5, (name, fetch_row(1, 1))), go_on(6)),
                *(go_on(7, forgotten=[(name, 1)]), produce(LEADER, partition=1), go_on(8)),
                *(go_on(9, (name, fetch_row(1))), go_on(10, (name, fetch_row(1, 2)))),
                *(delete_records(LEADER, offset=1), go_on(11), go_on(12, (name, fetch_row(0))), go_on(13)),
                *(go_on(14, (name, fetch_row(0, 1))), go_on(15)),
                go_on(16, (name, fetch_row(0, 1), fetch_row(0, 99), fetch_row(0, 1))),
                *(go_on(17, (name, fetch_row(0, 1, current_leader_epoch=epoch))) for epoch in (5,)),
                *(go_on(18), go_on(19, (name, fetch_row(0, 1))), go_on(20, (name, fetch_row(0, 1)), isolation=1)),
                go_on(21, (name, fetch_row(1, 0)), forgotten=[(name, 1)]),
                *(go_on(22), go_on(23, forgotten=[(name, 0)]), go_on(24)),
            ],
        )
        full = (name, *(fetch_row(index) for index in range(3)))
        yield Script(
            f"session {version}: shares",
            [
                *(create([1, 2], [1, 2], [1, 2]), BY_ID),
                *(produce(LEADER, partition=index) for index in range(3)),
                fetch_rows(LEADER, version, full, session=(0, 0), max_bytes=1),
                *(go_on(epoch, max_bytes=1) for epoch in range(1, 7)),
            ],
        )


def _session_errors():
    for version in SESSION_VERSIONS:
        name = _name(version)
        row = (name, fetch_row(0, 1))
        of_none = [(0, 1), (0, 5), (1, 1), (1, 5), (77, 0), (77, -1), (77, 1)]
        yield Script(
            f"session {version}: errors",
            [
                *(TWO, BY_ID, produce(LEADER)),
                *(fetch_rows(LEADER, version, row, session=each) for each in of_none),
                fetch_rows(LEADER, version, row, session=(0, 0)),
                *(fetch_rows(LEADER, version, row, session=("$S1", epoch)) for epoch in (2, 99, -2, -99, 1, 1, 2)),
                *(fetch_rows(at, version, session=("$S1", 3)) for at in (FOLLOWER, STRANGER, LEADER)),
                fetch_rows(LEADER, version, row, session=("$S1", 0)),
                *(fetch_rows(LEADER, version, session=each) for each in [("$S1", 4), ("$S2", 1)]),
                fetch_rows(LEADER, version, row, session=("$S2", -1)),
                *(fetch_rows(LEADER, version, session=each) for each in [("$S2", 2), ("$S2", -1)]),
            ],
        )
        yield Script(
            f"session {version}: without partitions",
            [
                *(TWO, BY_ID),
                fetch_rows(LEADER, version, session=(0, 0)),
                fetch_rows(LEADER, version, session=("$S0", 1)),
                fetch_rows(LEADER, version, session=("$S0", 2)),
                fetch_rows(LEADER, version, session=(0, 0)),
                fetch_rows(LEADER, version, row, session=("$S1", 1)),
                fetch_rows(LEADER, version, row, session=("$S1", 2), forgotten=[(name, 0)]),
                fetch_rows(LEADER, version, session=("$S1", 3)),
            ],
        )
    yield Script(
        "session: names and ids",
        [
            *(TWO, BY_ID),
            fetch_rows(LEADER, 12, (LEDGER, fetch_row()), session=(0, 0)),
            fetch_rows(LEADER, 13, ("$T0", fetch_row()), session=("$S0", 1)),
            fetch_rows(LEADER, 13, session=("$S0", 9)),
            *(fetch_rows(LEADER, version, session=("$S0", epoch)) for epoch, version in enumerate((7, 12, 11, 9), 1)),
            fetch_rows(LEADER, 18, ("$T0", fetch_row()), session=(0, 0)),
            fetch_rows(LEADER, 12, session=("$S1", 1)),
            *(fetch_rows(LEADER, version, session=("$S1", epoch)) for epoch, version in enumerate((13, 18, 16), 1)),
        ],
    )


def _session_topics():
    """Topics that appear and disappear within a session."""
    for version in SESSION_VERSIONS:
        name = _name(version)
        late = [(ORDERS if version < 13 else UNKNOWN, fetch_row()), (name, fetch_row(7))]
        yield Script(
            f"session {version}: unknown topics",
            [
                *(TWO, BY_ID),
                fetch_rows(LEADER, version, *late, (name, fetch_row()), session=(0, 0)),
                *(fetch_rows(LEADER, version, session=("$S0", epoch)) for epoch in (1, 2)),
                create([1, 2], topic=ORDERS),
                *(fetch_rows(LEADER, version, session=("$S0", epoch)) for epoch in (3, 4)),
                fetch_rows(LEADER, version, *late, (ZERO if version >= 13 else "", fetch_row()), session=("$S0", 5)),
                fetch_rows(LEADER, version, session=("$S0", 6), forgotten=[(late[0][0], 0), (name, 7)]),
                fetch_rows(LEADER, version, session=("$S0", 7)),
            ],
        )


def _move_leaders():
    """The leader moves within a session, and Fetch 16 names the new one."""
    for version in (12, 15, 16, 17, 18):
        name = _name(version)

        def ask_all(epoch, version=version, name=name):
            at_epoch = [fetch_rows(at, version, (name, fetch_row(0, 0, current_leader_epoch=epoch))) for at in BROKERS]
            return [*at_epoch, *(fetch_rows(at, version, (name, fetch_row(0), fetch_row(1))) for at in BROKERS)]

        yield Script(
            f"Fetch {version}: the leader moves",
            [
                *(create([1, 2], [2, 3]), BY_ID, produce(LEADER)),
                fetch_rows(LEADER, version, (name, fetch_row(0, 1, current_leader_epoch=0)), session=(0, 0)),
                *(move(LEDGER, 2), *ask_all(0), *ask_all(1), *ask_all(2)),
                *(fetch_rows(LEADER, version, session=("$S0", epoch)) for epoch in (1, 2)),
                fetch_rows(LEADER, version, (name, fetch_row(0, 1)), session=("$S0", 3)),
                *(move(LEDGER, 1), fetch_rows(LEADER, version, session=("$S0", 4)), *ask_all(0), *ask_all(2)),
            ],
        )
    left = [fetch_rows(at, version, ("$T0", fetch_row())) for version in (15, 16, 18) for at in (1, 3)]
    yield Script(
        "Fetch: the only replica stops, by id",
        [create([2]), describe(1, version=12), produce(2), *left, stop(2), *left, start(2), *left],
    )
