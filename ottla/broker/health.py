"""The state of a broker, from its start to its stop, and whether it is ready. pure"""

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from ottla.broker.log.remaining import Remaining

if TYPE_CHECKING:
    from ottla.broker.api.context import Broker
    from ottla.broker.log.log_manager import LogManager

MIB: Final = 1 << 20


class BrokerState(IntEnum):
    """`BrokerState` of Kafka 4.3.1, with its numbers, which a metric has; without controlled shutdown."""

    NOT_RUNNING = 0
    STARTING = 1
    """The directory is locked and the metadata is read."""
    RECOVERY = 2
    """The metadata is known, and logs are recovered after a crash. The broker does not listen yet."""
    RUNNING = 3
    """Clients may connect."""
    SHUTTING_DOWN = 7


class Health:
    """The state of one broker and the work left until it is ready.

    It can be read during the whole start and stop. Each call computes its result; no count is maintained for it. A
    broker is ready when all logs are recovered, its coordinators have read their logs for the first time, it listens,
    and its log directory can be written. It stays ready while a coordinator reads a partition later.
    """

    def __init__(self) -> None:
        self._state = BrokerState.NOT_RUNNING
        self._logs: LogManager | None = None
        self._broker: Broker | None = None
        self._was_ready = False

    def starting(self, logs: "LogManager") -> None:
        """Set the state before the directory is opened."""
        self._state, self._logs = BrokerState.STARTING, logs

    def running(self, broker: "Broker") -> None:
        """Set the state when the broker listens."""
        self._state, self._broker = BrokerState.RUNNING, broker

    def stopping(self) -> None:
        """Set the state when the broker stops listening."""
        self._state = BrokerState.SHUTTING_DOWN

    @property
    def state(self) -> BrokerState:
        """The current state."""
        if self._state is BrokerState.STARTING and self._logs is not None and self._logs.remaining.counted:
            return BrokerState.RECOVERY
        return self._state

    def remaining(self) -> Mapping[str, int]:
        """Return the work that is left before the broker is ready, by name of its metric."""
        left = Remaining() if self._logs is None else self._logs.remaining
        return {
            "remaining_logs_to_recover": left.logs,
            "remaining_bytes_to_recover": left.recover_bytes,
            "remaining_coordinators_to_load": self._coordinators_to_load(),
        }

    def problem(self) -> str | None:
        """Return the reason why the broker is not ready, or None. The sentence contains only facts that every client
        may know."""
        state, remaining = self.state, self.remaining()
        if state is BrokerState.SHUTTING_DOWN:
            return "The broker is stopping"
        if self._logs is not None and self._logs.offline is not None:
            return "The log directory is offline: the broker's log has the reason"
        if state is BrokerState.RECOVERY:
            logs, size_mib = remaining["remaining_logs_to_recover"], remaining["remaining_bytes_to_recover"] / MIB
            return f"The broker recovers its logs: {logs} partitions are left, with {size_mib:.1f} MiB to read"
        if state is not BrokerState.RUNNING:
            return "The broker reads its metadata"
        coordinators = remaining["remaining_coordinators_to_load"]
        if coordinators and not self._was_ready:
            return f"The coordinators read their logs: {coordinators} partitions are left"
        self._was_ready = True
        return None

    def _coordinators_to_load(self) -> int:
        broker = self._broker
        return 0 if broker is None else broker.remaining_to_load
