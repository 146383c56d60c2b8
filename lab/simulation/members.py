"""Copiers that share their inputs as members of a group, and commit with its generation (KIP-447). free

Each has a transactional id of its own, so only the group's generation and its pending offsets prevent two of them
from copying one input twice.
"""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from lab.client_requests import (
    MEMBER_ID_REQUIRED,
    NOT_A_MEMBER,
    REBALANCE_IN_PROGRESS,
    RETRIABLE,
    heartbeat,
    join_group,
    sync_group,
)
from lab.simulation.consumers import NO_MEMBER, Copier
from lab.simulation.process import Lost, Script
from lab.simulation.producers import ProducerBehaviour, Refused
from ottla.protocol.values import TopicPartition

if TYPE_CHECKING:
    from lab.simulation.world import World

SESSION_MS: Final = 800
REBALANCE_MS: Final = 500


class Member(Copier):
    """A copier that joins a group, copies from its assigned partitions, and heartbeats between its transactions."""

    def __init__(
        self, world: "World", name: str, random: Random, transactional_id: str, inputs: Sequence[TopicPartition],
        places: Sequence[TopicPartition], group: str, behaviour: ProducerBehaviour,
    ) -> None:  # fmt: skip
        super().__init__(world, name, random, transactional_id, inputs[0], places, group, behaviour)
        self.inputs = inputs
        self.share: list[TopicPartition] = []

    def transaction(self) -> Script:
        if self.membership != NO_MEMBER:
            yield from self.heartbeat()
        if self.membership == NO_MEMBER:
            yield from self.join()
        if not self.share:
            yield from self.sleep(self.random.random() * 300)
            return
        self.source, self.position = self.random.choice(self.share), None
        yield from super().transaction()

    def heartbeat(self) -> Script:
        """Send a heartbeat. Leave on any error: the group is rebalanced or has removed this member."""
        try:
            answer = yield from self.call(heartbeat(self.group, *self.membership))
        except Lost:
            return
        if answer.error_code:
            self.membership = NO_MEMBER

    def join(self) -> Script:
        """Join the next generation of the group and take the assigned partitions."""
        member_id = ""
        while True:
            try:
                answer = yield from self.call(join_group(self.group, member_id, SESSION_MS, REBALANCE_MS))
                error = answer.error_code
                if error == MEMBER_ID_REQUIRED:
                    member_id = answer.member_id
                    continue
                if not error:
                    member_id = answer.member_id
                    members = sorted(member.member_id for member in answer.members)
                    shares = self._divide(members) if answer.leader == member_id else {}
                    request = sync_group(self.group, answer.generation_id, member_id, shares)
                    generation_id, answer = answer.generation_id, (yield from self.call(request))
                    error = answer.error_code
                if not error:
                    break
            except Lost:
                yield from self.back_off()
                continue
            if error in NOT_A_MEMBER:
                member_id = ""
            elif error not in RETRIABLE and error != REBALANCE_IN_PROGRESS:
                raise Refused(error)
            yield from self.back_off()
        self.membership = generation_id, member_id
        self.share = [place for place in self.inputs if str(place[1]) in bytes(answer.assignment).decode().split(",")]
        self.world.met["group generations joined"] += 1

    def _divide(self, members: Sequence[str]) -> dict[str, bytes]:
        shares: dict[str, list[str]] = {member_id: [] for member_id in members}
        for number, place in enumerate(self.inputs):
            shares[members[number % len(members)]].append(str(place[1]))
        return {member_id: ",".join(share).encode() for member_id, share in shares.items()}
