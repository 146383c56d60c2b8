"""A partition of `__transaction_state`: its transactional ids and their states. free"""

from ottla.broker.coordinator.shard import StateLog
from ottla.broker.ports.clock import Timer
from ottla.broker.turns import Wait
from ottla.broker.txn import machine
from ottla.broker.txn.log import read_changes
from ottla.broker.txn.states import RESTING, TransactionStatus
from ottla.broker.txn.values import NO_PENDING, TransactionState, TransientState
from ottla.protocol.batch_header import BatchHeader


class Shard:
    """The transactional ids of one log partition.

    `states` is exactly the replayed log. `transient` holds the ids that have transient state. `open` holds those whose
    transaction is open, for the timeout scan. `waiting` holds the requests that wait for the end of their id's marker
    phase, in order of arrival, each with the timer that ends its wait. `unfinished` are the ids that were open or
    prepared when the log was replayed.
    """

    __slots__ = ("epoch", "log", "open", "resigned", "states", "transient", "unfinished", "waiting")

    def __init__(self, log: StateLog) -> None:
        self.log = log
        self.resigned = False
        self.epoch = log.leader_epoch
        self.states: dict[str, TransactionState] = {}
        self.transient: dict[str, TransientState] = {}
        self.open: dict[str, None] = {}
        self.unfinished: dict[str, None] = {}
        self.waiting: dict[str, dict[Wait[bool], Timer]] = {}

    def replay(self, header: BatchHeader, batch: memoryview) -> None:
        """Apply the changes of one batch of the log."""
        for transactional_id, state in read_changes(header, batch, f"__transaction_state-{self.log.index}"):
            machine.apply_record(self.states, transactional_id, state)
            if state is None or state.status in RESTING:
                self.unfinished.pop(transactional_id, None)
            else:
                self.unfinished[transactional_id] = None

    def set_transient(self, transactional_id: str, transient: TransientState) -> None:
        """Set the transient state of an id, or remove it if it is `NO_PENDING`."""
        if transient == NO_PENDING:
            self.transient.pop(transactional_id, None)
        else:
            self.transient[transactional_id] = transient

    def forget(self, transactional_id: str) -> None:
        """Remove an id whose tombstone is durable."""
        machine.apply_record(self.states, transactional_id, None)
        self.transient.pop(transactional_id, None)

    def release(self, transactional_id: str, ended: bool) -> None:
        """Wake the requests that wait for the end of the id's marker phase, in order of arrival."""
        for wait, timer in self.waiting.pop(transactional_id).items():
            timer.cancel()
            wait.wake(ended)

    def is_dying(self, transactional_id: str) -> bool:
        """Return whether the id's tombstone is being logged."""
        pending = self.transient.get(transactional_id, NO_PENDING).pending
        return pending is not None and pending.status is TransactionStatus.DEAD
