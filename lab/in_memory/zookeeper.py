"""Model of a ZooKeeper: nodes with versions, slow and lost answers, outages. free"""

from collections.abc import Callable
from random import Random

from ottla.broker.ports.zookeeper import NO_ANSWER, Answer, OnAnswer, Outcome


class ModelZooKeeper:
    """Nodes that outlive the brokers that are connected to them."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.is_up = True

    def put(self, path: str, data: bytes) -> None:
        """Write a node, whatever its version is."""
        self.nodes[path] = data, self.nodes.get(path, (b"", -1))[1] + 1


class ModelConnection:
    """A broker's connection to the model. `after` runs a call in a later turn of the broker, after a delay in ms."""

    def __init__(
        self,
        model: ModelZooKeeper,
        after: Callable[[float, Callable[[], None]], None],
        random: Random,
        lost: float = 0.0,
        slow_ms: float = 0.0,
    ) -> None:
        """Connect. The share `lost` of the requests gets no answer; answers take up to `slow_ms`."""
        self._model = model
        self._after = after
        self._random = random
        self._lost = lost
        self._slow_ms = slow_ms
        self.is_connected = True
        self.on_connected: Callable[[], None] = lambda: None
        self.sent: list[str] = []
        """The kinds of the requests so far."""

    def read(self, path: str, on_answer: OnAnswer) -> None:
        """Read a node's bytes and version."""

        def work() -> Answer:
            found = self._model.nodes.get(path)
            return Answer(Outcome.NO_NODE) if found is None else Answer(Outcome.OK, *found)

        self._ask("read", work, on_answer)

    def change(self, path: str, data: bytes, version: int, on_answer: OnAnswer) -> None:
        """Replace a node's bytes if it has this version, or any for version -1."""

        def work() -> Answer:
            found = self._model.nodes.get(path)
            if found is None:
                return Answer(Outcome.NO_NODE)
            if version not in (-1, found[1]):
                return Answer(Outcome.OTHER_VERSION)
            self._model.nodes[path] = data, found[1] + 1
            return Answer(Outcome.OK)

        self._ask("change", work, on_answer)

    def create(self, path: str, data: bytes, on_answer: OnAnswer) -> None:
        """Create a node."""

        def work() -> Answer:
            if path in self._model.nodes:
                return Answer(Outcome.EXISTS)
            self._model.nodes[path] = data, 0
            return Answer(Outcome.OK)

        self._ask("create", work, on_answer)

    def list_children(self, path: str, on_answer: OnAnswer) -> None:
        """List the first parts of all paths."""
        names = sorted({each.split("/")[1] for each in self._model.nodes})
        self._ask("list", lambda: Answer(Outcome.OK, children=names), on_answer)

    def close(self) -> None:
        """End the session."""
        self.is_connected = False

    def _ask(self, kind: str, work: Callable[[], Answer], on_answer: OnAnswer) -> None:
        """Carry a request out after a while, and give the answer after another while."""
        self.sent.append(kind)
        drawn = self._random.random()
        there_ms, back_ms = self._random.random() ** 2 * self._slow_ms, self._random.random() ** 2 * self._slow_ms
        if not self._model.is_up or drawn < self._lost / 2:
            self._after(there_ms, lambda: on_answer(NO_ANSWER))  # it is not applied
            return

        def arrive() -> None:
            answer = work()
            given = NO_ANSWER if drawn < self._lost else answer
            self._after(back_ms, lambda: on_answer(given))

        self._after(there_ms, arrive)
