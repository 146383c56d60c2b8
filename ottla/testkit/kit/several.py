"""Control of several brokers in one process: leaders, stops, pauses, links, frozen metadata. free

    moved = ottla_broker.move_leader("orders", 0, to=2)
    moved.wait_hit()

A change is a planned fault that fires each time that a client meets it. A test fails if no client met one of its
changes, except with `optional=True`.
"""

from collections.abc import Callable
from typing import Any

from ottla.testkit.kit.admin import Admin, quote_segment
from ottla.testkit.kit.faults import Faults, PlannedFault

__tracebackhide__ = True  # pytest then shows the line of the test and the message


class SeveralBrokers:
    """The calls that change brokers. Each returns when it is in effect. AdminFailed, with the reason, if it cannot be.

    A broker is named by its id: 1, 2, 3 with `brokers=3`.
    """

    admin: Callable[[], Admin]
    faults: Faults

    def brokers(self) -> list[dict[str, Any]]:
        """Return a row for each broker: `broker`, `state`, `metadata`, `disconnected_from`, `leads`."""
        return self.admin().get("/v1/brokers")  # type: ignore[no-any-return]

    def move_leader(self, topic: str, partition: int = 0, *, to: int, optional: bool = False) -> PlannedFault:
        """Make another replica the leader. Clients meet NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""
        return self._change(to, "lead", {"topic": topic, "partition": partition}, optional)

    def move_coordinator(
        self, transactional_id: str | None = None, *, group: str | None = None, to: int, optional: bool = False
    ) -> PlannedFault:
        """Move the coordinator of a transactional id, or of a group. Clients meet NOT_COORDINATOR."""
        if (transactional_id is None) == (group is None):
            raise TypeError("move_coordinator() takes a transactional id or group=, and not both")
        named = {"group": group} if transactional_id is None else {"transactional_id": transactional_id}
        return self._change(to, "coordinate", named, optional)

    def stop_broker(self, broker: int, *, optional: bool = False) -> PlannedFault:
        """Close the ports and connections of a broker. Replicas in sync lead its partitions.

        Clients meet the end of their connection, a partition or coordinator without a leader, or too few replicas.
        """
        return self._change(broker, "stop", None, optional)

    def start_broker(self, broker: int) -> None:
        """Start a stopped broker on its ports. Its replicas are in sync again."""
        self._post(broker, "start")

    def pause_broker(self, broker: int, *, optional: bool = False) -> PlannedFault:
        """Let a broker accept connections and requests, and answer nothing. Clients meet unanswered requests."""
        return self._change(broker, "pause", None, optional)

    def resume_broker(self, broker: int) -> None:
        """Let a paused broker answer what it has received."""
        self._post(broker, "resume")

    def disconnect(self, one: int, other: int, *, optional: bool = False) -> PlannedFault:
        """Lose all messages between two brokers: transaction markers, and the verification of transactions."""
        return self._change(one, "disconnect", {"from": other}, optional)

    def reconnect(self) -> None:
        """Restore all links between brokers."""
        self.admin().post("/v1/brokers/reconnect")

    def freeze_metadata(self, broker: int, *, optional: bool = False) -> PlannedFault:
        """Let Metadata and FindCoordinator of a broker answer what is true now. Clients meet answers that are wrong."""
        return self._change(broker, "freeze-metadata", None, optional)

    def unfreeze_metadata(self, broker: int) -> None:
        """Let a broker answer what is true."""
        self._post(broker, "unfreeze-metadata")

    def reset_brokers(self) -> None:
        """Undo all changes: each broker runs, and leads the partitions of which it is the first replica."""
        self.admin().post("/v1/brokers/reset")

    def _change(self, broker: int, what: str, body: object, optional: bool) -> PlannedFault:
        return self.faults.follow(self._post(broker, what, body), optional=optional)

    def _post(self, broker: int, what: str, body: object = None) -> Any:
        return self.admin().post(f"/v1/brokers/{quote_segment(str(broker))}/{what}", body)
