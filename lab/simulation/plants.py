"""Bugs on purpose: each turns off one rule of the broker, to measure how soon the simulation detects it. free"""

from types import ModuleType
from typing import Final

from lab.planting import Change, Plant
from ottla.broker.api import produce
from ottla.broker.group import shard
from ottla.broker.log import partition, producer_state_entry, producer_state_manager, unified_log
from ottla.broker.log.cleaning import cleaner, compaction, log_cleaner
from ottla.broker.txn import end_txn_rules, machine, markers, state_manager, values

STALE_ACCEPTED: Final = Change(producer_state_manager, "return _stale_epoch(producer, epoch)", "return ACCEPTED")
_VERIFY: Final = "error = error or _verify(broker, request, write)"
_UNVERIFIED: Final = Change(produce, _VERIFY, "error = error or NO_ERROR")
_LOGGED: Final = "return self.write_durable(shard, batch, ((transactional_id, decision),))"
STEPS_UNCHECKED: Final = Change(
    machine, "if after.producer_id < 0 or after.producer_epoch < 0:", "return\n    if after.producer_id < 0:"
)
_PREPARED_V2: Final = "return _prepare_v2(state, transient, commit, now_ms, fresh_producer_id, NO_ERROR)"


def _plant(rule: str, module: ModuleType, before: str, after: str) -> Plant:
    return Plant(rule, Change(module, before, after))


PLANTS: Final[dict[str, Plant]] = {
    "epochs-unchecked": Plant(
        "Data of an older epoch is appended, and its producer is not verified.", STALE_ACCEPTED, _UNVERIFIED
    ),
    "append-epoch-unchecked": Plant(
        "Data of an older epoch is appended if the coordinator knows its transaction.", STALE_ACCEPTED
    ),
    "unverified": Plant("Nobody asks the coordinator whether a write belongs to an open transaction.", _UNVERIFIED),
    "markers-before-prepare": _plant(
        "Markers are written, and only then the decision is logged.",
        state_manager,
        _LOGGED,
        f"""if record.status in machine.PREPARED:
            commit = record.status is PREPARE_COMMIT
            marker = TransactionMarker(
                record.producer_id, record.producer_epoch, shard.epoch, commit, record.client_version
            )
            for topic, index in record.partitions:
                self._fanout._sink.write_marker(topic, index, marker)
        {_LOGGED}""",
    ),
    "duplicates-appended": _plant(
        "A batch that was sent again is appended again.",
        producer_state_manager,
        "return AppendDecision(NO_ERROR, None, duplicate)",
        "return ACCEPTED",
    ),
    "gaps-accepted": Plant(
        "Any sequence will do, if it is not a repetition.",
        Change(producer_state_entry, "if first_sequence == increment_sequence(last, 1):", "if first_sequence > last:"),
        Change(producer_state_entry, "if first_sequence == 0:", "if True:"),
    ),
    "reuse-acknowledged": _plant(
        "Sequences of an ended transaction are those of its batches, sent again: Kafka's answer, and an option.",
        unified_log,
        "check_batch(header, _CLIENT, settings.refuse_sequence_reuse)",
        "check_batch(header, _CLIENT, False)",
    ),
    "pending-ignored": Plant(
        "What waits for its record or its markers stops nobody.",
        Change(
            state_manager,
            "decision = decide(state, transient, NO_PRODUCER_ID)",
            """if state is not None and state.status in machine.PREPARED:
            commit = state.status is PREPARE_COMMIT
            done = TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT
            state = state._replace(status=done)
        transient = transient._replace(pending=None)
        decision = decide(state, transient, NO_PRODUCER_ID)""",
        ),
        STEPS_UNCHECKED,
    ),
    "prepare-forgotten": _plant(
        "Recovery does not finish what was prepared.",
        machine,
        "return _EFFECTS.get(",
        "return () if before is None and after.status in PREPARED else _EFFECTS.get(",
    ),
    "open-forgotten": _plant(
        "Recovery does not watch the timeout of what was open.",
        machine,
        "return _EFFECTS.get(",
        "return () if before is None and after.status not in PREPARED else _EFFECTS.get(",
    ),
    "init-does-not-fence": _plant(
        "A new instance gets the epoch of the old one.",
        machine,
        "return Decision(NO_ERROR, record, last_epoch, state.producer_id, epoch)",
        """epoch = max(state.producer_epoch, 0)
    record = record._replace(producer_epoch=epoch)
    return Decision(NO_ERROR, record, last_epoch, state.producer_id, epoch)""",
    ),
    "markers-once": _plant(
        "A marker that a leader cannot take now is never tried again.",
        markers,
        "step = _NEXT.get(error)",
        "step = _DONE if _NEXT.get(error) is Next.RETRY else _NEXT.get(error)",
    ),
    "marker-epochs-unchecked": _plant(
        "A marker of an older epoch ends the transaction of a newer one.",
        producer_state_manager,
        "producer = self._by_id.get(producer_id) or ProducerStateEntry(producer_id)",
        "return ACCEPTED",
    ),
    "unstable-visible": _plant(
        "read_committed sees up to the high watermark.", partition, "if unstable is None:", "if True:"
    ),
    "offsets-never-settle": _plant(
        "A marker does not end what is pending in a group.",
        shard,
        "transaction = self._open.pop(producer_id, None)",
        "transaction = None",
    ),
    "aborted-list-empty": _plant(
        "The index of aborted transactions is not written.",
        producer_state_manager,
        "CompletedTxn(producer_id, first_offset, offset, not commit, stable)",
        "CompletedTxn(producer_id, first_offset, offset, False, stable)",
    ),
    "guard-missing": Plant(
        "A write that was verified may be appended 30 ms later, whatever came between.",
        Change(
            produce,
            "joined = await _join(",
            """writes = [
        write if write.error or _verify(broker, request, write) else write._replace(message="verified")
        for write in writes
    ]
    await verification.sleep(broker.turns, broker.clock, 30)
    joined = await _join(""",
        ),
        Change(produce, _VERIFY, "error = error or (NO_ERROR if message else _verify(broker, request, write))"),
    ),
    "overtaking-accepted": _plant(
        "A batch may come before the one that begins its transaction.",
        producer_state_manager,
        "overtaking = self._overtaking(header, producer) if",
        "overtaking = None if",
    ),
    "duplicate-early": _plant(
        "A batch that was sent again is acknowledged although the first one is not durable yet.",
        produce,
        "if not result.error and write.partition and",
        "if not result.error and not result.duplicate and write.partition and",
    ),
    "answered-early": _plant(
        "The coordinator answers as soon as a record is written; the state follows when it is durable.",
        state_manager,
        _LOGGED,
        """outcome = self.write_durable(shard, batch, ((transactional_id, decision),))
        return decision if isinstance(outcome, Wait) else outcome""",
    ),
    "abort-does-not-fence": _plant(
        "Transactions V1: a transaction that timed out is aborted in its own epoch, so its producer goes on.",
        end_txn_rules,
        "return Decision(answer, record, fenced_epoch=fence)",
        "return Decision(answer, record._replace(producer_epoch=state.producer_epoch))",
    ),
    # --- transactions V2 (KIP-890)
    "end-keeps-epoch": _plant(
        "EndTxn 5 ends the transaction and leaves the epoch as it is.",
        end_txn_rules,
        _PREPARED_V2,
        f"""decision = {_PREPARED_V2.removeprefix("return ")}
    if decision.record is None or decision.record.next_producer_id >= 0:
        return decision
    record = decision.record._replace(producer_epoch=state.producer_epoch)
    return decision._replace(record=record, producer_epoch=state.producer_epoch)""",
    ),
    "empty-abort-keeps-epoch": _plant(
        "EndTxn 5 aborts where nothing is open by doing nothing.",
        end_txn_rules,
        _PREPARED_V2,
        f"""if outcome is End.EMPTY_ABORT:
        return Decision(NO_ERROR, producer_id=state.producer_id, producer_epoch=state.producer_epoch)
    {_PREPARED_V2}""",
    ),
    "repeated-end-refused": _plant(
        "EndTxn 5 that was sent again is taken for that of a zombie.",
        end_txn_rules,
        "return Decision(NO_ERROR, producer_id=state.producer_id, producer_epoch=current)",
        "return ANSWERS[ErrorCode.PRODUCER_FENCED]",
    ),
    "equal-marker-accepted": _plant(
        "A marker of transactions V2 ends a transaction of its own epoch: that of the one before ends the next.",
        producer_state_manager,
        "transaction_version >= TRANSACTION_VERSION_2",
        "False",
    ),
    "join-skipped": Plant(
        "Produce 12 appends to partitions that the coordinator does not know of.",
        Change(produce, "if request.api_version >= FIRST_VERSION_THAT_ADDS else {}", "if False else {}"),
        Change(
            produce,
            _VERIFY,
            "error = error or (request.api_version < FIRST_VERSION_THAT_ADDS and _verify(broker, request, write))",
        ),
    ),
    "exhausted-id-kept": _plant(
        "A producer id whose epochs are used up stays in use.",
        values,
        "return epoch >= MAX_PRODUCER_EPOCH - 1",
        "return False",
    ),
    "markers-compacted-early": _plant(
        "The cleaner takes markers for needless whose transactions have records left.",
        compaction,
        "needless = self.transactions.on_control_batch(header, control_type_of(header, batch))",
        "needless = self.transactions.on_control_batch(header, control_type_of(header, batch)) or True",
    ),
    "cleaner-ignores-aborts": _plant(
        "The cleaner takes aborted records for committed ones.",
        cleaner,
        "aborted = await self._collect_aborted_txns(partition, offsets.first_uncleanable)",
        "aborted = []",
    ),
    "open-transactions-compacted": _plant(
        "The cleaner does not stop at the last stable offset.",
        log_cleaner,
        "return cleanable_offsets(sizes, first_dirty, uncleanable_offset)",
        "return cleanable_offsets(sizes, first_dirty, 1 << 62)",
    ),
}
"""Every plant by its name."""
