"""The states of a transactional id and the transitions between them: the only table. pure

Rules

1. A transactional id is in one state. Every change of state is a transition of the table below; a transition that the
   table lacks is a bug of the machine and raises `IllegalMove` before anything is logged.
2. The numbers are those of `__transaction_state` (field TransactionStatus). The names are those of DescribeTransactions
   and ListTransactions.
3. The outcome of a transaction is decided when PrepareCommit or PrepareAbort is durable. The only next state is the
   Complete state of the same outcome. The markers are written between the two.
4. While a transition is being logged, or a Complete transition waits for its markers, the id has a pending state and
   competing requests are answered CONCURRENT_TRANSACTIONS. Dead and PrepareEpochFence are only pending states: Dead is
   logged as a tombstone, PrepareEpochFence is the first half of an abort by the coordinator itself.
5. In Empty, CompleteCommit and CompleteAbort no transaction is open: the id may begin one, be initialised again, or
   expire. PrepareAbort may follow them only by the empty abort of transactions V2 (KIP-890), which bumps the epoch of a
   producer that has not added a partition.

Source: `org.apache.kafka.coordinator.transaction.TransactionState` of Kafka 4.3.1.
"""

from enum import IntEnum
from typing import Final


class TransactionStatus(IntEnum):
    """The state of a transactional id, with its number on disk."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def wire_name(self) -> str:
        """The name that DescribeTransactions and ListTransactions use ("PrepareCommit")."""
        return _WIRE_NAMES[self]


_S: Final = TransactionStatus
_WIRE_NAMES: Final = {status: "".join(word.title() for word in status.name.split("_")) for status in _S}

# For hot paths, as `NO_ERROR`.
EMPTY: Final = _S.EMPTY
ONGOING: Final = _S.ONGOING
PREPARE_COMMIT: Final = _S.PREPARE_COMMIT

RESTING: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
PENDING_ONLY: Final = frozenset({_S.DEAD, _S.PREPARE_EPOCH_FENCE})

ALLOWED_PREVIOUS: Final[dict[TransactionStatus, frozenset[TransactionStatus]]] = {
    _S.EMPTY: RESTING,
    _S.ONGOING: RESTING | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: RESTING | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: RESTING,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}

COMPLETION_OF: Final = {
    _S.PREPARE_COMMIT: _S.COMPLETE_COMMIT,
    _S.PREPARE_ABORT: _S.COMPLETE_ABORT,
}


class IllegalMove(Exception):
    """A transition that the table lacks: a bug of the machine, never caused by a client."""


def check_move(current: TransactionStatus, target: TransactionStatus) -> None:
    """Raise IllegalMove unless `target` may follow `current`."""
    if current not in ALLOWED_PREVIOUS[target]:
        raise IllegalMove(f"{current.wire_name} -> {target.wire_name}")
