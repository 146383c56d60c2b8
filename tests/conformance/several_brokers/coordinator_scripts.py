"""Requests that only a coordinator serves, in every version at each broker, before and after moves and stops."""

from ottla.protocol.api_keys import ApiKey as K
from tests.conformance.several_brokers.steps import (
    BROKERS,
    LEDGER,
    OFFSETS,
    STATES,
    TXN,
    Script,
    add,
    add_offsets,
    consumer_heartbeat,
    create,
    delete_groups,
    describe,
    describe_consumer_groups,
    describe_groups,
    describe_transactions,
    end,
    fetch,
    find,
    heartbeat,
    init,
    join,
    leave,
    list_groups,
    list_transactions,
    move,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    start,
    stop,
    sync,
    txn_offset_commit,
    versions_of,
)

EVERYWHERE = create([1, 2, 3])
BY_ID = describe(1, version=12)
OTHERS = (2, 3)
GROUP_APIS = {
    K.OFFSET_COMMIT: offset_commit,
    K.OFFSET_FETCH: offset_fetch,
    K.SYNC_GROUP: sync,
    K.HEARTBEAT: heartbeat,
    K.LEAVE_GROUP: leave,
    K.DESCRIBE_GROUPS: describe_groups,
    K.LIST_GROUPS: list_groups,
    K.CONSUMER_GROUP_DESCRIBE: describe_consumer_groups,
    K.DELETE_GROUPS: delete_groups,
}
TXN_APIS = {
    K.INIT_PRODUCER_ID: init,
    K.ADD_PARTITIONS_TO_TXN: add,
    K.ADD_OFFSETS_TO_TXN: add_offsets,
    K.END_TXN: end,
    K.TXN_OFFSET_COMMIT: txn_offset_commit,
    K.LIST_TRANSACTIONS: list_transactions,
}
MEMBER = [join(1, 3), sync(1)]
OPEN = [
    init(1),
    add(1),
    produce(1, 9, txn=TXN, producer_id="$P0", producer_epoch=0, base_sequence=0, transactional=True),
]
LOOK = [step(at) for step in (describe_transactions, list_transactions) for at in BROKERS]


def scripts():
    return [*_find(), *_groups(), *_moved_groups(), *_transactions(), *_moved_transactions(), *_stops()]


def _find():
    asked = [find(at, version, key_type) for version in range(7) for key_type in (0, 1) for at in BROKERS]
    odd = [find(1, version, key_type) for version in range(7) for key_type in (2, 3, -1)]
    odd += [find(1, version, key_type, "") for version in range(7) for key_type in (0, 1)]
    odd += [find(at, version, 0, "~a", "~b", "") for version in (4, 5, 6) for at in BROKERS]
    yield Script("FindCoordinator", asked)
    yield Script("FindCoordinator: unusual keys and types", odd)
    yield Script("FindCoordinator after moves", [move(OFFSETS, 2), move(STATES, 3), *asked])


def _groups():
    yield Script(
        "JoinGroup", [EVERYWHERE, *(join(at, version) for version in versions_of(K.JOIN_GROUP) for at in OTHERS)]
    )
    for api, step in GROUP_APIS.items():
        asked = [step(at, version) for version in versions_of(api) for at in OTHERS]
        yield Script(f"{api.title}", [EVERYWHERE, BY_ID, *MEMBER, *asked, heartbeat(1)])
    yield Script("OffsetDelete", [EVERYWHERE, *map(offset_delete, (*OTHERS, 1))])
    beats = [consumer_heartbeat(at, version, member) for version in (0, 1) for member in ("", "~m") for at in OTHERS]
    yield Script("ConsumerGroupHeartbeat", [EVERYWHERE, *beats])
    right = [
        *(offset_commit(1, version) for version in versions_of(K.OFFSET_COMMIT)),
        *(offset_fetch(1, version) for version in versions_of(K.OFFSET_FETCH)),
        *(list_groups(at, version) for version in versions_of(K.LIST_GROUPS) for at in BROKERS),
        *(delete_groups(at) for at in (*OTHERS, 1)),
    ]
    yield Script("groups at their coordinator", [EVERYWHERE, BY_ID, *right])


def _moved_groups():
    look = [
        *(step(at) for step in (offset_fetch, describe_groups, list_groups, heartbeat) for at in BROKERS),
        *(offset_fetch(at, 9) for at in BROKERS),
    ]
    commit = offset_commit(1, member="$M0", generation=1)
    yield Script(
        "a classic group moves",
        [
            EVERYWHERE,
            *MEMBER,
            commit,
            move(OFFSETS, 2),
            *look,
            *(join(at, 5, "$M0") for at in BROKERS),
            sync(2, generation=2),
            heartbeat(2, generation=2),
            move(OFFSETS, 1),
            *look,
            heartbeat(1, generation=2),
            leave(2),
            leave(1),
            *(step(1) for step in (describe_groups, delete_groups, describe_groups)),
        ],
    )
    beat = consumer_heartbeat
    known = [beat(at, 0, "$M0", 1, subscribed=False) for at in BROKERS]
    views = [step(at) for step in (describe_consumer_groups, list_groups) for at in BROKERS]
    yield Script(
        "a consumer group moves",
        [
            EVERYWHERE,
            beat(1),
            *known,
            *views,
            move(OFFSETS, 2),
            *known,
            *views,
            move(OFFSETS, 3),
            *known,
            *(beat(at, 0, "$M0", -1, subscribed=False) for at in BROKERS),
            *views,
            *map(delete_groups, BROKERS),
        ],
    )
    yield Script(
        "offsets without members move",
        [
            EVERYWHERE,
            offset_commit(1),
            move(OFFSETS, 3),
            *(step(at) for step in (offset_fetch, offset_commit, offset_delete, offset_fetch) for at in BROKERS),
        ],
    )


def _transactions():
    for api, step in TXN_APIS.items():
        asked = [step(at, version) for version in versions_of(api) for at in OTHERS]
        yield Script(api.title, [EVERYWHERE, init(1), *asked, describe_transactions(1)])
    without = [init(at, version, txn=None) for version in versions_of(K.INIT_PRODUCER_ID) for at in BROKERS]
    yield Script("InitProducerId without an id", without)
    yield Script("DescribeTransactions", [EVERYWHERE, *OPEN, *LOOK])
    batch = {"txn": TXN, "producer_id": "$P0", "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    asked = [produce(at, version, **batch) for version in (9, 10, 11, 12) for at in (3, 2)]
    yield Script(
        "transactional Produce", [create([1, 2]), init(1), add(1), *asked, *(end(at) for at in (2, 3, 1)), fetch(1)]
    )


def _moved_transactions():
    for committed in (True, False):
        name = "commit" if committed else "abort"
        ends = [end(at, version, committed) for version in (3, 4) for at in (1, 2, 3)]
        yield Script(
            f"a coordinator moves before {name}", [EVERYWHERE, *OPEN, move(STATES, 3), *LOOK, *ends, *LOOK, fetch(1)]
        )
        yield Script(
            f"coordinator and leader move before {name}",
            [EVERYWHERE, *OPEN, move(STATES, 3), move(LEDGER, 2), *ends, *LOOK, *(fetch(at, 11) for at in BROKERS)],
        )
        yield Script(
            f"a group moves before {name}",
            [
                EVERYWHERE,
                init(1),
                add_offsets(1),
                txn_offset_commit(1),
                move(OFFSETS, 2),
                *(offset_fetch(at, 7, stable) for stable in (False, True) for at in BROKERS),
                *map(txn_offset_commit, BROKERS),
                *(end(at, 3, committed) for at in (2, 3, 1)),
                init(1),
                *map(offset_fetch, BROKERS),
            ],
        )
    markers = [init(3, 4), describe_transactions(3)]
    yield Script(
        "a new instance at the next coordinator",
        [EVERYWHERE, *OPEN, move(STATES, 3), *(init(at) for at in BROKERS), *markers, end(3), end(3, epoch=2), *LOOK],
    )
    second = {"txn": TXN, "producer_id": "$P0", "producer_epoch": 0, "base_sequence": 1, "transactional": True}
    yield Script(
        "a transaction goes on at the next leader",
        [
            EVERYWHERE,
            *OPEN,
            move(LEDGER, 2),
            *(produce(at, 9, **second) for at in BROKERS),
            *(produce(at, 12, **second | {"base_sequence": 2}) for at in BROKERS),
            end(1),
            init(1),
            *(fetch(at, 11, isolation=1) for at in BROKERS),
        ],
    )


def _stops():
    asked = [find(at, version, key_type) for version in (1, 3, 4, 6) for key_type in (0, 1) for at in (2, 3)]
    yield Script(
        "a coordinator stops",
        [
            EVERYWHERE,
            *OPEN,
            *MEMBER,
            offset_commit(1, member="$M0", generation=1),
            find(2, 3),
            stop(1),
            *asked,
            *(step(at) for step in (describe_transactions, offset_fetch, heartbeat, describe_groups) for at in (2, 3)),
            *(end(at) for at in (3, 2)),
            describe_transactions(2),
            start(1),
            *asked,
            *(step(at) for step in (describe_transactions, offset_fetch) for at in BROKERS),
        ],
    )
