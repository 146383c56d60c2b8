"""The links between the brokers of a process, which tests cut. pure

A message between two brokers is a transaction marker, or the question whether a batch belongs to a transaction. On a
link that is cut it is lost, as if the connection ended before the answer.
"""

from ottla.broker.cluster.leadership import LeadershipProblem, list_ids


class Links:
    """All links between the brokers of these ids. They are whole at first."""

    def __init__(self, ids: range) -> None:
        self._ids = ids
        self.cut: set[frozenset[int]] = set()
        """The pairs of brokers whose link is cut."""
        self.paused_ids: set[int] = set()
        """The brokers that answer nothing."""

    def reaches(self, one: int, other: int) -> bool:
        """Return whether the answers of one broker arrive at the other. A broker always reaches itself."""
        if one == other or not (self.cut or self.paused_ids):
            return True
        return not ({one, other} & self.paused_ids or frozenset((one, other)) in self.cut)

    def disconnect(self, one: int, other: int) -> None:
        """Cut the link between two brokers. Raises LeadershipProblem."""
        self._check(one, other)
        if one == other:
            raise LeadershipProblem(f"broker {one} has no link to itself: name two brokers")
        if frozenset((one, other)) in self.cut:
            raise LeadershipProblem(f"the link between the brokers {one} and {other} is cut already")
        self.cut.add(frozenset((one, other)))

    def reconnect(self) -> None:
        """Restore all links."""
        self.cut.clear()

    def pause(self, node_id: int) -> None:
        """Let a broker answer nothing. Raises LeadershipProblem."""
        self._check(node_id)
        if node_id in self.paused_ids:
            raise LeadershipProblem(f"broker {node_id} is paused already")
        self.paused_ids.add(node_id)

    def resume(self, node_id: int) -> None:
        """Let a paused broker answer again. Raises LeadershipProblem."""
        self._check(node_id)
        if node_id not in self.paused_ids:
            raise LeadershipProblem(f"broker {node_id} is not paused")
        self.paused_ids.remove(node_id)

    def _check(self, *node_ids: int) -> None:
        for node_id in node_ids:
            if node_id not in self._ids:
                raise LeadershipProblem(f"there is no broker {node_id}: the brokers are {list_ids(self._ids)}")
