"""Changes to the brokers of a process, one after the other, and the clients that met them."""

import random
import time
from collections import Counter, deque

from ottla.testkit.kit.admin import AdminFailed

ACTS = {"lead": 48, "coordinate": 24, "group": 9, "stop": 6, "disconnect": 7, "pause": 6}
"""What changes, with its weight."""
UNDO = {"stop": "start", "pause": "resume"}
LONG_SHARE, LONG_S, MOST_S = 0.04, 10, 2


class Changes:
    """Moves of leaders and coordinators, stops, pauses and lost links. One broker at most is stopped or paused.

    `names` are transactional ids, `groups` names of groups, `topics` names of topics of so many `partitions`.
    """

    def __init__(self, admin, names, groups, topics, partitions, seed):
        self._admin, self._names, self._groups, self._topics = admin, names, groups, topics
        self._partitions, self._dice = partitions, random.Random(seed)
        self._due = deque()  # (when, path) of what undoes a change
        self.made, self.refused, self._hits = Counter(), Counter(), {}

    def make(self):
        """Make one change, or none if it is not possible now."""
        self._undo()
        act = self._dice.choices([*ACTS], [*ACTS.values()])[0]
        if act in UNDO and any(path.endswith((UNDO["stop"], UNDO["pause"])) for _, path in self._due):
            act = "lead"
        broker = self._dice.randint(1, 3)
        path, body = f"/v1/brokers/{broker}/{act}", None
        if act == "lead":
            body = {"topic": self._dice.choice(self._topics), "partition": self._dice.randrange(self._partitions)}
        elif act == "coordinate":
            body = {"transactional_id": self._dice.choice(self._names)}
        elif act == "group":
            path = f"/v1/brokers/{broker}/coordinate"
            body = {"group": self._dice.choice(self._groups)}
        elif act == "disconnect":
            body = {"from": self._dice.choice([each for each in (1, 2, 3) if each != broker])}
        try:
            change = self._admin.post(path, body)
        except AdminFailed as refused:
            self.refused[act] += refused.status == 409
            return
        self.made[act] += 1
        self._hits[change["id"]] = 0
        duration_s = LONG_S if self._dice.random() < LONG_SHARE else min(self._dice.expovariate(2), MOST_S)
        if act in UNDO:
            self._due.append((time.monotonic() + duration_s, f"/v1/brokers/{broker}/{UNDO[act]}"))
        elif act == "disconnect":
            self._due.append((time.monotonic() + duration_s, "/v1/brokers/reconnect"))
        if sum(self.made.values()) % 100 == 0:
            self.count_hits()

    def _undo(self):
        for _ in range(len(self._due)):
            when, path = self._due.popleft()
            if when > time.monotonic():
                self._due.append((when, path))
            else:
                self._admin.post(path)

    def undo_all(self):
        """Let all brokers run, and connect them."""
        while self._due:
            self._admin.post(self._due.popleft()[1])

    def end(self):
        self.undo_all()
        self._admin.post("/v1/brokers/reset")

    def count_hits(self):
        for fault in self._admin.get("/v1/faults"):
            self._hits[fault["id"]] = fault["hits"]

    @property
    def met(self):
        """The number of changes that a client met, and how often all of them were met."""
        return sum(hits > 0 for hits in self._hits.values()), sum(self._hits.values())
