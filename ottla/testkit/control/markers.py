"""Faults on the transaction markers that the coordinator sends to partition leaders. shell"""

from collections.abc import Callable
from typing import Any

from ottla.broker.api.context import Broker
from ottla.broker.cluster.marker_channels import MarkerAnswer
from ottla.broker.txn.values import TransactionState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TransactionMarker
from ottla.testkit.control.crash import crash
from ottla.testkit.faults.fault import Fault
from ottla.testkit.faults.plan import Named, Plan

Write = Callable[[str, int, TransactionMarker], ErrorCode | MarkerAnswer]


class SteeredMarkers:
    """Wrapper of the broker's marker sink that applies faults.

    A held or lost marker gets REQUEST_TIMED_OUT, as if the leader did not answer, so the coordinator retries it. The
    release of a held marker triggers the retry at once.
    """

    def __init__(self, broker: Broker, plan: Plan) -> None:
        sink: Any = broker.transactions.sink
        self._write: Write = sink.write_marker
        self._broker = broker
        self._plan = plan
        self._held: set[tuple[int, str, int, TransactionMarker]] = set()
        sink.write_marker = self.write_marker

    def write_marker(self, topic: str, index: int, marker: TransactionMarker) -> ErrorCode | MarkerAnswer:
        """Write a marker, or apply a fault to it. Called by the coordinator."""
        plan = self._plan
        if not (plan.watches("marker") or plan.watches("marker_reply")):
            return self._write(topic, index, marker)
        owner = self._owner(marker.producer_id)
        named = {"transactional_id": owner, "producer_id": marker.producer_id, "topic": topic, "partition": index}
        occasion = Named(named | {"broker": self._broker.cluster.leader_of(topic, index)[0]})
        for fault in plan.find_firing("marker", occasion):
            if fault.do == "crash":
                crash(fault)
            elif fault.do == "reply":
                return fault.error
            elif fault.do == "lose":
                return ErrorCode.REQUEST_TIMED_OUT
            elif not fault.released:
                self._hold(fault, topic, index, marker)
                return ErrorCode.REQUEST_TIMED_OUT
        error = self._write(topic, index, marker)
        for fault in plan.find_firing("marker_reply", occasion):
            if fault.do == "crash":
                crash(fault)
            error = ErrorCode.REQUEST_TIMED_OUT
        return error

    def _hold(self, fault: Fault, topic: str, index: int, marker: TransactionMarker) -> None:
        """Register the marker as held by the fault, once, however often the coordinator retries it."""
        key = fault.id, topic, index, marker
        if key in self._held:
            return

        def go_on() -> None:
            self._held.discard(key)
            self._broker.transactions.states.retry_markers()

        self._held.add(key)
        self._plan.hold(fault, go_on)

    def _owner(self, producer_id: int) -> str | None:
        """Return the transactional id of the producer id, or None."""
        for shard in self._broker.transaction_shards():
            for transactional_id, state in shard.states.items():
                if _has(state, producer_id):
                    return transactional_id
        return None


def _has(state: TransactionState, producer_id: int) -> bool:
    return producer_id in (state.producer_id, state.previous_producer_id)
