"""Rules of the broker turned off on purpose, to see that the model notices. free

A plant is a context manager; explore a world that is made inside of it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from ottla.broker.api import verification
from ottla.broker.log.producer_state_entry import ACCEPTED
from ottla.broker.log.producer_state_manager import ProducerStateManager
from ottla.broker.txn import machine
from ottla.broker.txn.states import COMPLETION_OF, PREPARED
from ottla.protocol.errors import ErrorCode
from ottla.testkit.model.coordinator import Coordinators, written_by
from ottla.testkit.simulation import plants as simulated
from ottla.testkit.simulation.plants import replaced


@contextmanager
def epochs_unchecked() -> Iterator[None]:
    """Neither the log nor the coordinator looks at the epoch of a write."""

    def lenient(check: Any) -> Any:
        def check_batch(self: ProducerStateManager, header: Any, origin: Any, refuse_reuse: bool = True) -> Any:
            decision = check(self, header, origin, refuse_reuse)
            return ACCEPTED if decision.error is ErrorCode.INVALID_PRODUCER_EPOCH else decision

        return check_batch

    def verified(_known: Any) -> Any:
        return lambda state, transient, producer_id, epoch, partitions: [ErrorCode.NONE] * len(partitions)

    def opened(_known: Any) -> Any:
        return lambda log, producer_id, epoch: (
            ErrorCode.NONE if log.has_ongoing_transaction(producer_id, epoch) else None
        )

    unseen = replaced(verification, "local_verification", opened)
    with (
        replaced(ProducerStateManager, "check_batch", lenient),
        replaced(machine, "verify_partitions", verified),
        unseen,
    ):
        yield


def unverified() -> AbstractContextManager[None]:
    """The coordinator finds every write sound."""

    def make(_known: Any) -> Any:
        return lambda state, transient, producer_id, epoch, partitions: [ErrorCode.NONE] * len(partitions)

    return replaced(machine, "verify_partitions", make)


def equal_markers_accepted() -> AbstractContextManager[None]:
    """A marker of V2 may have the epoch of the transaction that is open."""

    def make(check: Any) -> Any:
        def check_marker(
            self: ProducerStateManager, producer_id: int, epoch: int, coordinator_epoch: int, version: int
        ) -> Any:
            return check(self, producer_id, epoch, coordinator_epoch, 0)

        return check_marker

    return replaced(ProducerStateManager, "check_marker", make)


@contextmanager
def nothing_pending() -> Iterator[None]:
    """What is being logged or waits for its markers stops nobody."""

    def blind(decide: Any) -> Any:
        def _decide(self: Coordinators, coordinator: Any, request: Any, fresh: int) -> Any:
            state = coordinator.state
            if state is not None and state.status in PREPARED:
                state = state._replace(status=COMPLETION_OF[state.status])
            transient = coordinator.transient._replace(pending=None)
            return decide(self, coordinator._replace(state=state, transient=transient), request, fresh)

        return _decide

    unchecked = replaced(machine, "check_step", lambda _known: lambda before, after: None)
    with replaced(Coordinators, "_decide", blind), unchecked:
        yield


@contextmanager
def markers_before_prepare() -> Iterator[None]:
    """The markers do not wait until the decision is durable, so that a crash may lose it behind them."""

    def early(markers: Any) -> Any:
        def known(self: Coordinators, number: int) -> Any:
            coordinator = self.known[number]
            last = coordinator.appending[-1] if coordinator.appending else None
            record = None if last is None else last.decision.record
            if last is None or record is None or record.status not in PREPARED:
                return markers(self, number)
            transient = coordinator.transient._replace(awaiting=record.partitions)
            return written_by(coordinator._replace(state=record, transient=transient, members=last.members))

        return known

    def unheard(answered: Any) -> Any:
        def marker_answered(self: Coordinators, number: int, marker: Any, error: Any) -> Any:
            return answered(self, number, marker, error) if self.known[number].transient.awaiting else number

        return marker_answered

    with replaced(Coordinators, "markers", early), replaced(Coordinators, "marker_answered", unheard):
        yield


def retry_unrecognised() -> AbstractContextManager[None]:
    """An EndTxn of V2 that is repeated is not recognised: it ends the next transaction."""

    def make(decide: Any) -> Any:
        def decide_end_v2(state: Any, transient: Any, producer_id: int, epoch: int, *rest: Any) -> Any:
            current = epoch if state is None else max(epoch, state.producer_epoch)
            return decide(state, transient, producer_id, current, *rest)

        return decide_end_v2

    return replaced(machine, "decide_end_v2", make)


PLANTS: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {
    "epochs-unchecked": epochs_unchecked,
    "unverified": unverified,
    "equal-markers-accepted": equal_markers_accepted,
    "marker-epochs-unchecked": simulated.marker_epochs_unchecked,
    "duplicates-appended": simulated.duplicates_appended,
    "nothing-pending": nothing_pending,
    "markers-before-prepare": markers_before_prepare,
    "retry-unrecognised": retry_unrecognised,
    "prepare-forgotten": simulated.prepare_forgotten,
    "open-forgotten": simulated.open_forgotten,
    "init-does-not-fence": simulated.init_does_not_fence,
}
"""Every plant by its name."""
