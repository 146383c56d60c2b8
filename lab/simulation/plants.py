"""Bugs on purpose: each turns off one rule of the broker, to measure how soon the simulation detects it. free"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from lab.planting import Plant, Replacement
from lab.simulation import bugs, group_bugs, move_bugs
from lab.simulation.ids import block_bugs
from ottla.broker.api import durability, produce
from ottla.broker.api.context import Broker
from ottla.broker.cluster.controller import Controller
from ottla.broker.cluster.marker_channels import MarkerAnswer
from ottla.broker.cluster.zookeeper_blocks import ZooKeeperBlocks
from ottla.broker.coordinator.loader import CoordinatorLoader
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.group import log as group_log
from ottla.broker.group.commits import OffsetCommits
from ottla.broker.group.consumer import classic_members, decisions, members, migration
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.consumer.coordinator import ConsumerGroups
from ottla.broker.group.consumer.members import ConsumerGroupMember
from ottla.broker.group.consumer.topic_regex_resolver import TopicRegexResolver
from ottla.broker.group.shard import GroupStore
from ottla.broker.log import producer_state_entry
from ottla.broker.log.cleaning import compaction
from ottla.broker.log.cleaning.cleaner import Cleaner
from ottla.broker.log.cleaning.compaction import CleanedTransactionMetadata
from ottla.broker.log.partition import Partition
from ottla.broker.log.producer_state_manager import ProducerStateManager
from ottla.broker.txn import end_txn_rules, machine, values
from ottla.broker.txn.markers import MarkerFanout
from ottla.broker.txn.state_manager import TransactionStateManager


def _plant(rule: str, owner: ModuleType | type, name: str, bug: Callable[..., Any]) -> Plant:
    return Plant(rule, Replacement(owner, name, bug))


_STALE_ACCEPTED: Final = Replacement(ProducerStateManager, "check_batch", bugs.accept_stale_epoch)
_UNVERIFIED: Final = Replacement(produce, "_verify", bugs.skip_verification)

PLANTS: Final[dict[str, Plant]] = {
    "epochs-unchecked": Plant(
        "The partition appends data of an older epoch, and Produce does not verify the producer.",
        _STALE_ACCEPTED,
        _UNVERIFIED,
    ),
    "append-epoch-unchecked": Plant(
        "The partition appends data of an older epoch if the coordinator knows the transaction.", _STALE_ACCEPTED
    ),
    "unverified": Plant(
        "Produce does not ask the coordinator whether a write belongs to an open transaction.", _UNVERIFIED
    ),
    "markers-before-prepare": _plant(
        "The coordinator writes the markers before it logs the decision.",
        TransactionStateManager,
        "write_durable",
        bugs.write_markers_first,
    ),
    "duplicates-appended": _plant(
        "The partition appends a repeated batch again.", ProducerStateManager, "check_batch", bugs.accept_duplicate
    ),
    "gaps-accepted": _plant(
        "The partition accepts every sequence above the last one.",
        producer_state_entry,
        "sequence_gap",
        bugs.accept_gap,
    ),
    "reuse-acknowledged": _plant(
        "The partition takes sequences of an ended transaction for its batches, sent again, as an option allows.",
        ProducerStateManager,
        "check_batch",
        bugs.acknowledge_reuse,
    ),
    "pending-ignored": Plant(
        "The coordinator decides requests while a record is being logged or markers are being written.",
        Replacement(TransactionStateManager, "commit", bugs.ignore_pending),
        Replacement(machine, "check_step", bugs.skip_step_check),
    ),
    "prepare-forgotten": _plant(
        "Recovery does not complete prepared transactions.", machine, "effects", bugs.forget_prepared_transactions
    ),
    "open-forgotten": _plant(
        "Recovery does not watch the timeouts of open transactions.", machine, "effects", bugs.forget_open_transactions
    ),
    "init-does-not-fence": _plant(
        "InitProducerId gives a new instance the epoch of the old one.",
        machine,
        "_initialize",
        bugs.keep_epoch_of_old_instance,
    ),
    "markers-once": _plant(
        "The coordinator does not repeat a marker that a leader cannot take now.",
        MarkerFanout,
        "__init__",
        bugs.write_markers_once,
    ),
    "marker-epochs-unchecked": _plant(
        "A marker of an older epoch ends the transaction of a newer one.",
        ProducerStateManager,
        "check_marker",
        bugs.accept_marker,
    ),
    "unstable-visible": _plant(
        "The last stable offset is the high watermark.", Partition, "_move_last_stable_offset", bugs.show_unstable
    ),
    "offsets-never-settle": _plant(
        "A marker leaves the offsets of its transaction pending in a group.",
        GroupStore,
        "end_transaction",
        bugs.leave_offsets_pending,
    ),
    "aborted-list-empty": _plant(
        "The partition does not write the index of aborted transactions.",
        ProducerStateManager,
        "apply_marker",
        bugs.leave_out_of_index,
    ),
    "guard-missing": Plant(
        "Produce appends a write 30 ms after its verification, even if a marker was written in between.",
        Replacement(produce, "_append_all", bugs.verify_early),
        Replacement(produce, "_verify", bugs.verify_once),
    ),
    "overtaking-accepted": _plant(
        "The partition appends a batch before the one that begins its transaction.",
        ProducerStateManager,
        "_overtaking",
        bugs.accept_overtaking,
    ),
    "duplicate-early": _plant(
        "Produce acknowledges a repeated batch before the first one is durable.",
        produce,
        "_wait_durable",
        bugs.answer_duplicate_early,
    ),
    "answered-early": _plant(
        "The coordinator answers before its record is durable; the state follows later.",
        TransactionStateManager,
        "commit",
        bugs.answer_early,
    ),
    "abort-does-not-fence": _plant(
        "Transactions V1: the coordinator aborts a transaction that timed out in its own epoch, and does not fence it.",
        end_txn_rules,
        "decide_abort",
        bugs.abort_in_same_epoch,
    ),
    # --- transactions V2 (KIP-890)
    "end-keeps-epoch": _plant(
        "EndTxn 5 ends the transaction and does not bump the epoch.",
        end_txn_rules,
        "decide_end_v2",
        bugs.end_in_same_epoch,
    ),
    "empty-abort-keeps-epoch": _plant(
        "EndTxn 5 logs nothing and does not bump the epoch if it aborts and no transaction is open.",
        end_txn_rules,
        "decide_end_v2",
        bugs.skip_empty_abort,
    ),
    "repeated-end-refused": _plant(
        "The coordinator takes a repeated EndTxn 5 for that of a zombie.",
        end_txn_rules,
        "decide_end_v2",
        bugs.refuse_repeated_end,
    ),
    "retry-unrecognised": _plant(
        "A repeated EndTxn 5 ends the next transaction.", end_txn_rules, "decide_end_v2", bugs.end_next_transaction
    ),
    "equal-marker-accepted": _plant(
        "A late marker of transactions V2 ends the next transaction, which has its epoch.",
        ProducerStateManager,
        "check_marker",
        bugs.check_marker_as_v1,
    ),
    "join-skipped": Plant(
        "Produce 12 does not add its partitions to the transaction.",
        Replacement(produce, "_join", bugs.skip_join),
        Replacement(produce, "_verify", bugs.verify_only_v1),
    ),
    "exhausted-id-kept": _plant(
        "The coordinator keeps a producer id whose epochs are used up.", values, "is_exhausted", bugs.keep_exhausted_id
    ),
    "markers-compacted-early": _plant(
        "The cleaner drops markers whose transactions have records left.",
        CleanedTransactionMetadata,
        "on_control_batch",
        bugs.drop_every_marker,
    ),
    "cleaner-ignores-aborts": _plant(
        "The cleaner takes aborted records for committed ones.",
        Cleaner,
        "_collect_aborted_txns",
        bugs.find_no_aborted_txns,
    ),
    "open-transactions-compacted": _plant(
        "The cleaner does not stop at the last stable offset.", compaction, "cleanable_offsets", bugs.clean_unstable
    ),
    # --- groups of the consumer protocol (KIP-848)
    "assigned-before-revoked": _plant(
        "A member gets partitions that another one has not given up.",
        members,
        "_take_free",
        group_bugs.take_others,
    ),
    "revocation-not-awaited": _plant(
        "A partition is free as soon as the target takes it from a member.",
        members,
        "owns_any",
        group_bugs.own_nothing,
    ),
    "heartbeat-answered-early": _plant(
        "A heartbeat is answered before its records are durable.",
        durability,
        "wait_group_durable",
        group_bugs.wait_for_nothing,
    ),
    "group-epoch-goes-back": _plant(
        "The removal of a member takes the group back to an earlier epoch.",
        decisions,
        "decide_removal",
        group_bugs.remove_in_earlier_epoch,
    ),
    "session-never-ends": _plant(
        "The coordinator removes no member whose session has ended.",
        ConsumerGroup,
        "late_members",
        group_bugs.find_no_ended_session,
    ),
    "session-under-old-id": Plant(
        "The session of a static member that comes back under another id goes on under the old one.",
        Replacement(ConsumerGroup, "_remove_member", group_bugs.keep_session_of_old_id),
        Replacement(ConsumerGroup, "start_session", group_bugs.start_session_of_old_id),
    ),
    "target-not-logged": _plant(
        "The target assignments of members are applied and not logged.",
        group_log,
        "encode_rows",
        group_bugs.leave_targets_out,
    ),
    "stale-commit-accepted": _plant(
        "A commit of an earlier epoch counts for a partition that the member did not have then.",
        ConsumerGroupMember,
        "owned_since",
        group_bugs.own_everything,
    ),
    "member-tombstone-lost": _plant(
        "The log keeps the subscription of a member that is removed.",
        group_log,
        "encode_rows",
        group_bugs.leave_tombstones_out,
    ),
    # --- groups that change their protocol (KIP-848), and regular expressions
    "upgrade-forgets-assignment": _plant(
        "A group that is upgraded forgets what its classic members have, so that it is given away.",
        migration,
        "_convert_member",
        group_bugs.forget_assignment,
    ),
    "upgrade-in-earlier-epoch": _plant(
        "The first epoch of a group that is upgraded is lower than its generation.",
        migration,
        "_upgrade_records",
        group_bugs.upgrade_in_earlier_epoch,
    ),
    "upgrade-without-sessions": _plant(
        "The classic members of a group that is upgraded have no session.",
        ConsumerGroups,
        "_end_classic",
        group_bugs.start_no_sessions,
    ),
    "classic-never-joins-again": _plant(
        "Heartbeat does not ask a classic member of a consumer group to join again.",
        classic_members,
        "must_join",
        group_bugs.never_join_again,
    ),
    "downgrade-exchanges-assignments": _plant(
        "A group that is downgraded gives each member the assignment of another.",
        migration,
        "decide_downgrade",
        group_bugs.exchange_assignments,
    ),
    "downgrade-in-earlier-generation": _plant(
        "The generation of a group that is downgraded is lower than its last epoch.",
        migration,
        "decide_downgrade",
        group_bugs.downgrade_in_earlier_generation,
    ),
    "downgrade-without-rebalance": _plant(
        "A group that is downgraded does not begin a rebalance, so that the partitions of the last consumer are lost.",
        migration,
        "_find_reason",
        group_bugs.find_no_reason,
    ),
    "past-generation-accepted": _plant(
        "A classic group accepts the commits of every generation.",
        OffsetCommits,
        "_commit_error",
        group_bugs.accept_every_generation,
    ),
    "matches-kept": _plant(
        "Regular expressions are not matched again when topics are created.",
        TopicRegexResolver,
        "newest_topics",
        group_bugs.see_no_new_topics,
    ),
    # --- several brokers
    "coordinator-does-not-resign": _plant(
        "A broker goes on as the coordinator of a partition that another broker leads.",
        CoordinatorRuntime,
        "resign",
        move_bugs.stay,
    ),
    "applied-after-move": _plant(
        "The former coordinator applies records that are durable after the move.",
        CoordinatorRuntime,
        "write_durable",
        move_bugs.apply_after_resigning,
    ),
    "undurable-loaded": _plant(
        "The next coordinator loads, and acts on, records that are not durable yet.",
        CoordinatorLoader,
        "_build",
        move_bugs.load_at_once,
    ),
    "stale-load-kept": _plant(
        "A coordinator keeps what it was loading when the partition moved.",
        CoordinatorLoader,
        "drop",
        move_bugs.keep_load,
    ),
    "leader-unchecked": _plant(
        "Produce does not check again, in the step of the append, that its broker leads the partition.",
        Broker,
        "leads",
        move_bugs.lead_every_partition,
    ),
    "fetches-stay-parked": _plant(
        "A new leader does not wake the fetches that wait.", Partition, "lead", move_bugs.lead_and_wake_no_fetch
    ),
    "former-marker-accepted": _plant(
        "A partition accepts the late marker of a former coordinator.",
        ProducerStateManager,
        "check_marker",
        move_bugs.accept_former_coordinator,
    ),
    "late-refusal-ignored": _plant(
        "The coordinator takes a refused marker of another broker as written.",
        MarkerAnswer,
        "give",
        move_bugs.ignore_late_refusals,
    ),
    "block-without-version": _plant(
        "A block is taken whatever the version of the node is.",
        ZooKeeperBlocks,
        "_write_block",
        block_bugs.change_any_version,
    ),
    "lost-block-used": _plant(
        "A block is used although the answer to its change is lost.",
        ZooKeeperBlocks,
        "_write_block",
        block_bugs.use_lost_answer,
    ),
    "equal-block-accepted": _plant(
        "A block is used if the node has its bytes.", ZooKeeperBlocks, "_write_block", block_bugs.accept_equal_block
    ),
    "block-below-log": _plant(
        "A block below those of the metadata log is taken.",
        ZooKeeperBlocks,
        "_on_read",
        block_bugs.take_block_below_log,
    ),
    "id-before-durable": _plant(
        "An id is given before the record of its block is durable.",
        Controller,
        "log_producer_ids",
        block_bugs.give_ids_before_durable,
    ),
}
"""Every plant by its name."""
