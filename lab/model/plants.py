"""Rules of the broker turned off on purpose, to check that the model detects it. Create the world meanwhile. free"""

from typing import Final

from lab.model import coordinator
from lab.planting import Change, Plant
from lab.simulation.plants import PLANTS as SIMULATED
from lab.simulation.plants import STALE_ACCEPTED, STEPS_UNCHECKED
from ottla.broker.api import verification
from ottla.broker.txn import end_txn_rules, machine

_VERIFIED: Final = (
    Change(machine, "return [refusal] * len(partitions)", "return [NO_ERROR] * len(partitions)"),
    Change(machine, "[NO_ERROR if each in known else ErrorCode.TRANSACTION_ABORTABLE for", "[NO_ERROR for"),
)
_WRITTEN: Final = "known = self._markers[number] = written_by("
_ROTATED: Final = "rotated = state.previous_producer_id == producer_id"


def _in_model(before: str, after: str) -> Change:
    return Change(coordinator, before, after)


PLANTS: Final[dict[str, Plant]] = {
    "epochs-unchecked": Plant(
        "Neither the log nor the coordinator looks at the epoch of a write.",
        STALE_ACCEPTED,
        Change(verification, "if epoch < producer.epoch:", "if False:"),
        *_VERIFIED,
    ),
    "unverified": Plant("The coordinator finds every write sound.", *_VERIFIED),
    "equal-markers-accepted": SIMULATED["equal-marker-accepted"],
    "marker-epochs-unchecked": SIMULATED["marker-epochs-unchecked"],
    "duplicates-appended": SIMULATED["duplicates-appended"],
    "nothing-pending": Plant(
        "What is being logged or waits for its markers stops nobody.",
        _in_model(
            "producer_id, epoch = request.producer_id, request.epoch",
            """if state is not None and state.status in machine.PREPARED:
            commit = state.status is TransactionStatus.PREPARE_COMMIT
            done = TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT
            state = state._replace(status=done)
        transient = transient._replace(pending=None)
        producer_id, epoch = request.producer_id, request.epoch""",
        ),
        STEPS_UNCHECKED,
    ),
    "markers-before-prepare": Plant(
        "The markers do not wait until the decision is durable, so that a crash may lose it behind them.",
        _in_model(
            f"{_WRITTEN}self.known[number])",
            f"""coordinator = self.known[number]
            last = coordinator.appending[-1] if coordinator.appending else None
            if last is not None and last.decision.record.status in machine.PREPARED:
                record = last.decision.record
                transient = coordinator.transient._replace(awaiting=record.partitions)
                coordinator = coordinator._replace(state=record, transient=transient, members=last.members)
            {_WRITTEN}coordinator)""",
        ),
        _in_model(
            "key = (number, marker, error)",
            """if not self.known[number].transient.awaiting:
            return number
        key = (number, marker, error)""",
        ),
    ),
    "retry-unrecognised": Plant(
        "An EndTxn of V2 that is repeated is not recognised: it ends the next transaction.",
        Change(end_txn_rules, _ROTATED, f"epoch = max(epoch, state.producer_epoch)\n    {_ROTATED}"),
    ),
    "prepare-forgotten": SIMULATED["prepare-forgotten"],
    "open-forgotten": SIMULATED["open-forgotten"],
    "init-does-not-fence": SIMULATED["init-does-not-fence"],
}
"""Every plant by its name."""
