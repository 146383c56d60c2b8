"""In-sync sets and leaders while brokers stop and start, and requests that need enough replicas in sync."""

from ottla.protocol.api_keys import ApiKey as K
from tests.conformance.several_brokers.steps import (
    BROKERS,
    LEDGER,
    OFFSETS,
    TXN,
    Script,
    add,
    add_offsets,
    ask,
    consumer_heartbeat,
    create,
    delete_groups,
    describe,
    describe_transactions,
    end,
    fetch,
    find,
    heartbeat,
    init,
    join,
    leave,
    list_offsets,
    move,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    set_config,
    start,
    stop,
    sync,
    txn_offset_commit,
    versions_of,
)

PLACES = ([1, 2, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1])


def scripts():
    return [*_in_sync(), *_epochs(), *_enough(), *_transaction_coordinator(), *_group_coordinator()]


def look(*running):
    """Describe the ledger at each broker that runs."""
    return [describe(at) for at in running]


def _in_sync():
    yield Script(
        "each broker stops and starts",
        [
            create(*PLACES),
            *look(*BROKERS),
            stop(1),
            *look(2, 3),
            start(1),
            *look(*BROKERS),
            stop(2),
            *look(1, 3),
            start(2),
            *look(*BROKERS),
            stop(3),
            *look(1, 2),
            start(3),
            *look(*BROKERS),
        ],
    )
    yield Script(
        "two brokers stop and start",
        [create(*PLACES), stop(1), stop(2), *look(3), start(1), *look(1, 3), start(2), *look(*BROKERS)],
    )
    yield Script(
        "a leader moves and its broker stops",
        [
            create(*PLACES),
            move(LEDGER, 3),
            *look(1),
            stop(3),
            *look(1, 2),
            start(3),
            *look(*BROKERS),
            move(LEDGER, 3),
            stop(1),
            *look(2, 3),
            start(1),
            *look(*BROKERS),
        ],
    )


def _epochs():
    epochs = [fetch(at, 11, epoch) for epoch in (-1, 0, 1, 2, 3) for at in BROKERS]
    yield Script(
        "epochs over a stop",
        [
            create([1, 2, 3]),
            produce(1),
            stop(1),
            produce(2),
            *(fetch(at, 11, epoch) for epoch in (-1, 0, 1) for at in (2, 3)),
            start(1),
            produce(2),
            *epochs,
            *(list_offsets(at, 6, epoch) for epoch in (0, 1, 2) for at in BROKERS),
        ],
    )
    yield Script(
        "a broker without the topic stops",
        [create([1, 2]), stop(3), *look(1, 2), start(3), *look(*BROKERS), produce(1), fetch(1, 11, 0), fetch(1, 11, 1)],
    )
    for least in (1, 2):
        yield Script(
            f"both replicas stop, {least} must be in sync",
            [
                create([1, 2], [2, 1], min_insync_replicas=least),
                stop(1),
                *look(3),
                stop(2),
                *look(3),
                start(1),
                *look(1, 3),
                start(2),
                *look(*BROKERS),
            ],
        )


def _enough():
    steps = [produce(1, version, acks) for version in range(3, 13) for acks in (-1, 1, 0)]
    checks = [*steps, list_offsets(1), fetch(1)]
    yield Script(
        "acks of all need two in sync",
        [
            create([1, 2, 3], min_insync_replicas=2),
            produce(1),
            stop(3),
            produce(1),
            stop(2),
            *checks,
            describe(1),
            start(2),
            produce(1),
            start(3),
            *steps[-6:],
            list_offsets(1),
        ],
    )
    yield Script(
        "more must be in sync than there are replicas",
        [
            create([1], min_insync_replicas=2),
            produce(1),
            produce(1, acks=1),
            create([1, 2], topic="~two", min_insync_replicas=3),
            produce(1, topic="~two"),
            stop(2),
            produce(1, topic="~two"),
            produce(1),
        ],
    )
    yield Script(
        "the least number changes",
        [
            create([1, 2]),
            stop(2),
            produce(1),
            set_config(LEDGER, min_insync_replicas=2),
            produce(1),
            set_config(LEDGER, min_insync_replicas=1),
            produce(1),
            start(2),
            set_config(LEDGER, min_insync_replicas=2),
            produce(1),
        ],
    )
    batch = {"txn": TXN, "producer_id": "$P0", "producer_epoch": 0, "transactional": True}
    yield Script(
        "a transaction with too few in sync",
        [
            create([1, 3], min_insync_replicas=2),
            init(1),
            add(1),
            produce(1, 9, base_sequence=0, **batch),
            stop(3),
            *(produce(1, version, base_sequence=1, **batch) for version in (9, 11, 12)),
            produce(1, 9, acks=1, base_sequence=1, **batch),
            end(1),
            fetch(1),
            start(3),
            init(1),
            fetch(1),
        ],
    )


def _transaction_coordinator():
    """Scripts in which one broker of three is left. `__transaction_state` needs two in sync, as by default."""
    asked = [
        *(init(1, version, txn="~other") for version in versions_of(K.INIT_PRODUCER_ID)),
        *(init(1, version) for version in (3, 4)),
        *(add(1, version) for version in versions_of(K.ADD_PARTITIONS_TO_TXN)),
        *(add_offsets(1, version) for version in versions_of(K.ADD_OFFSETS_TO_TXN)),
        *(end(1, version) for version in versions_of(K.END_TXN)),
        describe_transactions(1),
        *(find(1, version, 1) for version in range(7)),
        init(1, 4, txn=None),
    ]
    yield Script(
        "too few in sync for transactions",
        [
            create([1], topic="~other"),
            create([1]),
            init(1),
            add(1),
            stop(2),
            stop(3),
            *asked,
            start(2),
            end(1),
            init(1),
        ],
    )


def _group_coordinator():
    rows = [
        *(offset_commit(1, version) for version in range(2, 10)),
        *(offset_commit(1, version, "$M0", 1) for version in (8, 9)),
        offset_fetch(1),
        *(heartbeat(1, version) for version in versions_of(K.HEARTBEAT)),
        *(txn_offset_commit(1, version) for version in range(3)),
        offset_delete(1),
        *(delete_groups(1, version) for version in versions_of(K.DELETE_GROUPS)),
        *(find(1, version, 0) for version in range(7)),
    ]
    other = {"group_id": "~other", "member_id": "", "protocol_type": "consumer"}
    times = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    joins = [
        ask(1, K.JOIN_GROUP, version, **other, **times, protocols=[{"name": "range", "metadata": "sub"}])
        for version in (0, 2, 3)
    ]
    beats = [consumer_heartbeat(1, version, "~m") for version in (0, 1)]
    yield Script(
        "too few in sync for groups",
        [
            create([1]),
            set_config(OFFSETS, min_insync_replicas=2, cleanup_policy="compact"),
            init(1),
            add_offsets(1),
            join(1, 3),
            sync(1),
            offset_commit(1, 8, "$M0", 1),
            stop(2),
            stop(3),
            *rows,
            *joins,
            leave(1),
            start(2),
            offset_fetch(1),
            heartbeat(1),
            set_config(OFFSETS, min_insync_replicas=1, cleanup_policy="compact"),
        ],
    )
    yield Script(
        "too few in sync for a consumer group",
        [
            create([1]),
            set_config(OFFSETS, min_insync_replicas=2, cleanup_policy="compact"),
            stop(2),
            stop(3),
            *beats,
            start(2),
            consumer_heartbeat(1, 1, "~m"),
            set_config(OFFSETS, min_insync_replicas=1, cleanup_policy="compact"),
        ],
    )
    yield Script(
        "a classic group waits for too few in sync",
        [
            create([1]),
            set_config(OFFSETS, min_insync_replicas=2, cleanup_policy="compact"),
            join(1, 3),
            stop(2),
            stop(3),
            sync(1),
            heartbeat(1),
            start(2),
            set_config(OFFSETS, min_insync_replicas=1, cleanup_policy="compact"),
        ],
    )
