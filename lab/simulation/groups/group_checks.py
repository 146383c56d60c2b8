"""Checks of the groups of the consumer protocol: at every step, at each answer, and when all have settled. free

A step is checked by the state that it leaves: owners, epochs, timers. An answer is checked against the state when the
client reads it: an epoch that it brings is durable, and no other client holds a partition that it gives.

A group may become a classic one and back (`migration_checks.py`). It keeps its epochs, unless it had no members.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any, Final

from lab.simulation.groups.classic_membership import ClassicMembership, TopicCounts, find_places
from lab.simulation.groups.commit_checks import CommittedOffsets, find_commit_problem, map_partitions
from lab.simulation.groups.membership import GroupPartition, Membership
from lab.simulation.groups.migration_checks import (
    SeenGroup,
    check_classic_owners,
    check_migration,
    count_partitions,
    find_changes,
    find_forgotten,
    is_owner_of_classic_group,
)
from ottla.broker.api.context import Broker
from ottla.broker.assembly import Assembly
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.commits import CommitRow
from ottla.broker.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupState
from ottla.broker.group.consumer.members import LEAVE_STATIC_EPOCH, ConsumerGroupMember, MemberState
from ottla.broker.group.members import Caller
from ottla.broker.group.states import ClassicGroupState
from ottla.protocol.internal_topics.consumer_group_records import CurrentAssignment

if TYPE_CHECKING:
    from lab.simulation.world import World

NO_ERROR: Final = 0
DEFAULT_ASSIGNOR: Final = "uniform"
CLOCK_MS: Final = 100.0
"""How far the time may move within a step: each read of the clock may take a while."""


class GroupChecks:
    """The groups of one run, as they were at the last step, and the memberships of the clients."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._versions: dict[str, tuple[ConsumerGroup, int]] = {}
        self._epochs: dict[str, tuple[int, int]] = {}
        self._member_epochs: dict[tuple[str, str], int] = {}
        self._answered: dict[tuple[str, str], int] = {}
        self._appended: dict[tuple[str, str], tuple[int, int]] = {}
        self._currents: dict[tuple[str, str], CurrentAssignment] = {}
        self._seen: dict[str, SeenGroup] = {}
        self._upgraded: dict[str, int] = {}
        """Generation in which a group was upgraded last."""
        self._downgraded: dict[str, tuple[int, TopicCounts]] = {}
        """Generation in which a group was downgraded last, and its topics then; none if it is that of the upgrade."""
        self.offsets = CommittedOffsets(world.met)
        self._end = 0

    # --- lives of the broker

    def began_life(self, assembly: Assembly) -> None:
        """Watch the commits of a new life, and check its groups once they are loaded.

        The last generation of a classic group may be in no log.
        """
        self._versions.clear()
        for group_id, seen in [*self._seen.items()]:
            if seen.is_classic:
                self._epochs.pop(group_id, None)
                del self._seen[group_id]
            if seen.is_classic and seen.look_again().is_empty:
                self._forget(group_id)
        self._currents.clear()
        for broker in assembly.broker.brokers:
            self._watch_commits(broker)

    def _watch_commits(self, broker: Broker) -> None:
        offsets: Any = broker.groups.offsets
        commit = offsets.commit

        def commit_and_check(caller: Caller, rows: Sequence[CommitRow], *others: Any, **named: Any) -> Any:
            is_transactional = named.get("producer", others[0] if others else None) is not None
            refusals = [find_commit_problem(broker, caller, row, is_transactional) for row in rows]
            errors = commit(caller, rows, *others, **named)
            accepted = [refusal for refusal, error in zip(refusals, errors, strict=True) if error == NO_ERROR]
            self._world.violations.extend(f"foreign-commit: {refusal}" for refusal in accepted if refusal)
            if self._world.profile.migrates:
                for row, error in zip(rows, errors, strict=True):
                    if error == NO_ERROR:
                        self._follow_commit(caller, row)
            return errors

        offsets.commit = commit_and_check

    def _follow_commit(self, caller: Caller, row: CommitRow) -> None:
        group = self._find_group(caller.group_id)
        members = () if group is None else group.members
        clients = [each for each in self._memberships() if each.member_id in members]
        self._world.violations.extend(self.offsets.follow(caller, row, clients))

    def lost_power(self, keeps_answered: bool) -> None:
        """Forget what may be lost: all epochs, or with `keeps_answered` those that no client knows."""
        self.offsets.committed.clear()
        self._seen.clear()
        self._epochs.clear()
        self._appended.clear()
        self._member_epochs = dict(self._answered) if keeps_answered else {}
        self._end = 0

    # --- steps

    def check(self, assembly: Assembly) -> Iterator[str]:
        """Check the groups that have changed since the last step."""
        broker = _find_coordinator(assembly)
        if broker is None:
            return  # no broker leads their partition
        error, groups = broker.groups.list_groups()
        if error or broker.groups._manager._loader._work.under_way:
            return  # they are being loaded, or their timers are being started
        found: set[str] = set()
        for metadata in groups:
            group = metadata.group
            found.add(group.group_id)
            if isinstance(group, ClassicGroup):
                if self._world.profile.migrates:
                    yield from self._check_classic_group(assembly, group)
                continue
            version = group, group.version
            if self._versions.get(group.group_id) != version:
                self._versions[group.group_id] = version
                self._world.met["groups with resolved regular expressions"] |= bool(group.regexes)
                self._world.met["groups of both protocols"] |= 0 < group.classic_count < len(group.members)
                yield from self._check_change(assembly, group)
                yield from self._check_group(group)
        for group_id in self._epochs.keys() - found:
            if self._world.profile.migrates and self._seen[group_id].is_empty:
                self._forget(group_id)  # killed before the classic group that replaces it was logged
                del self._seen[group_id]
            else:
                yield f"group {group_id} is gone"
        log = assembly.broker.cluster.partition(CONSUMER_OFFSETS_TOPIC, 0)
        self._end = 0 if log is None else log.log_end_offset

    def _check_classic_group(self, assembly: Assembly, group: ClassicGroup) -> Iterator[str]:
        yield from self._check_change(assembly, group)
        before = self._epochs.get(group.group_id, (0, 0))
        if group.generation < max(before):
            yield f"group-epoch: group {group.group_id} went back from {before} to the generation {group.generation}"
        self._epochs[group.group_id] = group.generation, group.generation
        yield from check_classic_owners(assembly, group)

    def _check_change(self, assembly: Assembly, group: ClassicGroup | ConsumerGroup) -> Iterator[str]:
        """Check a group that has changed its protocol, and forget one that was empty and begins again."""
        before, now = self._seen.get(group.group_id), SeenGroup.of(group, self._world.kills)
        self._seen[group.group_id] = now
        if before is not None and before.is_classic == now.is_classic:
            self._find_returns(now.targets.keys() - before.targets.keys())
            return
        if isinstance(group, ConsumerGroup):
            self._find_withdrawn(group)
        upgraded = self._upgraded.pop(group.group_id, None)
        if before is None:
            return
        before = before.look_again()
        self._currents = {key: value for key, value in self._currents.items() if key[0] != group.group_id}
        if before.is_empty:
            self._forget(group.group_id)
            return
        if before.classic is not None:
            self._upgraded[group.group_id] = before.classic.generation
        elif isinstance(group, ClassicGroup):
            counts = {} if group.generation == upgraded else count_partitions(assembly)
            self._downgraded[group.group_id] = group.generation, counts
        self._world.met["groups upgraded" if before.is_classic else "groups downgraded"] += 1
        yield from check_migration(assembly, before, group, before.kills != now.kills)

    def _forget(self, group_id: str) -> None:
        self._epochs.pop(group_id, None)
        for known in (self._member_epochs, self._answered, self._appended):
            for key in [key for key in known if key[0] == group_id]:
                del known[key]

    def _find_withdrawn(self, group: ConsumerGroup) -> None:
        """Mark clients that own what their classic group no longer assigned to them when it was upgraded.

        Cooperative members keep their partitions until they have read the next assignment, and a rebalance that begins
        before the last one has ended withdraws all assignments. Neither Kafka nor Ottla asks what they own.
        """
        for membership in self._memberships():
            if membership.group != group.group_id or not isinstance(membership, ClassicMembership):
                continue
            member = group.members.get(membership.member_id)
            if membership.owned - (set() if member is None else map_partitions(member).keys()):
                membership.is_overtaken = True
                self._world.met["members of a withdrawn assignment"] += 1

    def _find_returns(self, joined: Set[str]) -> None:
        """Mark clients that have joined a consumer group with their old member id, and with what they owned.

        Such a client has not noticed that its session ended. A classic member may join with any id, and gets no error
        then. It gives up its partitions only when it reads its assignment, and others may have them. Kafka allows it.
        """
        for membership in self._memberships():
            if isinstance(membership, ClassicMembership) and membership.member_id in joined and membership.owned:
                membership.is_overtaken = True
                self._world.met["members that joined with what they owned before their removal"] += 1

    def _check_group(self, group: ConsumerGroup) -> Iterator[str]:
        title = f"group {group.group_id}"
        before, now = self._epochs.get(group.group_id, (0, 0)), (group.epoch, group.assignment_epoch)
        if now[0] < before[0] or now[1] < before[1]:
            yield f"group-epoch: {title} went back from {before} to {now}"
        if group.assignment_epoch > group.epoch:
            yield f"group-epoch: {title} has the target assignment of an epoch to come, {now}"
        self._epochs[group.group_id] = now
        yield from _check_owners(group)
        if group.sessions.keys() != group.members.keys():
            yield f"timers: {title} has sessions of {[*group.sessions]}, and the members {[*group.members]}"
        for member in group.members.values():
            yield from self._check_member(group, member)
        for (group_id, member_id), epoch in [*self._member_epochs.items()]:
            if group_id == group.group_id and member_id not in group.members and epoch > group.epoch:
                yield f"member-epoch: {member_id} of {title} had {epoch}, and is gone at {group.epoch}"
        for instance_id, member_id in group.static_members.items():
            if member_id not in group.members:
                yield f"static: {instance_id} of {title} is {member_id}, which is no member"

    def _check_member(self, group: ConsumerGroup, member: ConsumerGroupMember) -> Iterator[str]:
        key = group.group_id, member.member_id
        before, now = self._member_epochs.get(key, 0), member.epoch
        yield from self._check_limit(group, member)
        if now == LEAVE_STATIC_EPOCH and member.metadata.instance_id is not None:
            return
        if now < before:
            yield f"member-epoch: {member.member_id} of group {group.group_id} went back from {before} to {now}"
        if not 0 < now <= group.assignment_epoch:
            yield f"member-epoch: {member} of group {group.group_id} at {group.assignment_epoch}"
        if now != before:
            self._appended[key] = now, self._end
        self._member_epochs[key] = now

    def _check_limit(self, group: ConsumerGroup, member: ConsumerGroupMember) -> Iterator[str]:
        """Check that a member has its rebalance timeout for each change of what it must give up."""
        key = group.group_id, member.member_id
        if self._currents.get(key) == member.current:
            return
        self._currents[key] = member.current
        if member.state is not MemberState.UNREVOKED_PARTITIONS or member.epoch == LEAVE_STATIC_EPOCH:
            return
        if member.metadata.classic is not None:
            return  # its limit begins with the next answer to its heartbeat
        end_ms, _ = group.rebalances.get(member.member_id, (0.0, 0))
        if end_ms < self._world.schedule.now_ms + member.metadata.rebalance_timeout_ms - CLOCK_MS:
            yield f"timers: {member.member_id} of group {group.group_id} must give up its partitions before {end_ms}"

    # --- answers

    def on_heartbeat_answer(self, membership: Membership, new: set[GroupPartition]) -> None:
        """Check an answer that a client has read; `new` are the partitions that it had not owned."""
        world, group = self._world, self._find_group(membership.group)
        if world.lost_power or group is None:
            return
        if isinstance(group, ClassicGroup):
            world.violations.extend(self._check_classic_answer(group, membership, new))
            return
        key = membership.group, membership.member_id
        self._answered[key] = max(membership.epoch, self._answered.get(key, 0))
        world.violations.extend(self._check_answer(group, membership))
        member = group.members.get(membership.member_id)
        if member is None or member.epoch != membership.epoch:
            return
        for other in self._memberships():
            if other is membership or other.is_overtaken or other.member_id not in group.members:
                continue
            both = new & other.owned
            world.met["partitions given that another member owns by name"] += len(both & other.owned_by_name)
            if both := both - other.owned_by_name:
                world.violations.append(
                    f"given-twice: {membership.member_id} gets {_show(both)}, which {other.member_id} has not given up"
                )

    def _check_classic_answer(
        self, group: ClassicGroup, membership: Membership, new: set[GroupPartition]
    ) -> Iterator[str]:
        """Check that no other member of the generation may commit what a member has got."""
        if not is_owner_of_classic_group(group, membership):
            return
        for other in self._memberships():
            both = new & other.owned
            if other is not membership and both and is_owner_of_classic_group(group, other):
                yield (
                    f"given-twice: {membership.member_id} gets {_show(both)} in the generation {group.generation}, "
                    f"which {other.member_id} has not given up"
                )

    def _check_answer(self, group: ConsumerGroup, membership: Membership) -> Iterator[str]:
        member, epoch = group.members.get(membership.member_id), membership.epoch
        title = f"{membership.member_id} of group {membership.group} was answered with epoch {epoch}"
        if member is not None:
            if LEAVE_STATIC_EPOCH != member.epoch < epoch:
                yield f"acknowledged-early: {title}, and has {member.epoch}"
        elif membership.instance_id not in group.static_members and group.epoch <= epoch:
            yield f"acknowledged-early: {title}, and is gone at {group.epoch}"
        at_epoch, offset = self._appended.get((membership.group, membership.member_id), (0, -1))
        assembly = self._world.assembly
        log = None if assembly is None else assembly.broker.cluster.partition(CONSUMER_OFFSETS_TOPIC, 0)
        if log is not None and at_epoch == epoch and log.high_watermark <= offset:
            yield f"acknowledged-early: {title} at {offset}, and the log is durable up to {log.high_watermark}"

    def _find_group(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """Return a loaded group."""
        assembly = self._world.assembly
        broker = None if assembly is None else _find_coordinator(assembly)
        metadata = None if broker is None else broker.groups.describe(group_id)[0]
        return None if metadata is None else metadata.group

    def _memberships(self) -> Iterator[Membership]:
        for process in self._world.processes:
            found = getattr(process, "member", None)
            if isinstance(found, Membership):
                yield found

    # --- rest

    def find_disorder(self, assembly: Assembly) -> Iterator[str]:
        """Yield what is not as it must be after a quiet time in which all clients have sent heartbeats."""
        for membership in self._memberships():
            if membership.process.done:
                continue
            group = self._find_group(membership.group)
            member = None if group is None else group.members.get(membership.member_id)
            title = f"unsettled: {membership.member_id} of group {membership.group}"
            if group is None or member is None:
                yield f"{title} is no member"
            elif isinstance(member, ConsumerGroupMember):
                if not self._has_epoch_since_upgrade(group):
                    continue  # its assignment may be that of a classic group whose rebalance had not ended
                if (member.epoch, _places(member)) != (membership.epoch, membership.owned):
                    yield f"{title} owns {_show(membership.owned)} in {membership.epoch}, by the broker {member}"
            elif isinstance(group, ClassicGroup):
                places, owned = find_places(assembly, member.assignment), membership.owned
                if not places ^ owned <= self._find_changes(assembly, group) or not membership.epoch:
                    yield f"{title} owns {_show(owned)}, by the broker {_show(places)}"
        for metadata in assembly.broker.list_groups():
            if isinstance(metadata.group, ConsumerGroup) and metadata.group.members:
                yield from self._check_rest(assembly, metadata.group)
            elif isinstance(metadata.group, ClassicGroup) and metadata.group.members:
                yield from self._check_classic_rest(assembly, metadata.group)

    def _check_rest(self, assembly: Assembly, group: ConsumerGroup) -> Iterator[str]:
        """Check that all partitions have an owner, unless a member has begun no epoch, in Kafka neither.

        A member begins none with an expression that is not resolved, or matches nothing. What the rebalance of a
        classic group had taken from a member when the group was upgraded, or what a static member had with another
        subscription, has no owner until the next epoch.
        """
        if not self._has_epoch_since_upgrade(group):
            self._world.met["groups without a new epoch since their upgrade"] += 1
        elif any(not resolved.topics for resolved in group.regexes.values()):
            self._world.met["groups with an expression that matches nothing"] += 1
        else:
            yield from _check_balance(assembly, group)

    def _has_epoch_since_upgrade(self, group: ClassicGroup | ConsumerGroup) -> bool:
        return isinstance(group, ClassicGroup) or group.epoch != self._upgraded.get(group.group_id)

    def _check_classic_rest(self, assembly: Assembly, group: ClassicGroup) -> Iterator[str]:
        """Check that a classic group is stable in one generation, and that its clients own all partitions."""
        title = f"unsettled: group {group.group_id}"
        if group.state is not ClassicGroupState.STABLE:
            yield f"{title} is {group.state.value}"
        clients = [each for each in self._memberships() if each.group == group.group_id and not each.process.done]
        if {each.epoch for each in clients} != {group.generation}:
            yield f"{title} is in the generation {group.generation}, its clients in {[each.epoch for each in clients]}"
        topics = assembly.broker.cluster.topics
        names = {name for each in clients for name in each.names if name in topics}
        everything = {(topics[name].topic_id, index) for name in names for index in range(topics[name].partition_count)}
        found = {place for each in clients for place in each.owned}
        if not found ^ everything <= find_forgotten(assembly, group, clients) | self._find_changes(assembly, group):
            yield f"{title} has {_show(found)} of {_show(everything)}"
        elif found != everything:
            self._world.met["groups with partitions that a member forgot"] += 1

    def _find_changes(self, assembly: Assembly, group: ClassicGroup) -> set[GroupPartition]:
        downgraded = self._downgraded.get(group.group_id, (0, {}))
        return find_changes(assembly, group, [*self._memberships()], downgraded)

    def find_members_left(self, assembly: Assembly) -> Iterator[str]:
        """Yield the members whose session has not ended, although no client has sent heartbeats for long."""
        for metadata in assembly.broker.list_groups():
            if metadata.group.members:
                yield f"session: group {metadata.group.group_id} still has {[*metadata.group.members]}"


def _find_coordinator(assembly: Assembly) -> Broker | None:
    """Return the broker that coordinates the groups, all of which are in one partition; None if no broker does."""
    broker = assembly.broker
    if broker.links is None:
        return broker
    return next((each for each in broker.brokers if each.groups._manager.shards), None)


def _check_owners(group: ConsumerGroup) -> Iterator[str]:
    title = f"of group {group.group_id}"
    owners: dict[GroupPartition, ConsumerGroupMember] = {}
    for member in group.members.values():
        for place in map_partitions(member):
            other = owners.setdefault(place, member)
            if other is not member:
                yield f"two-owners: {_show([place])} {title} belongs to {other.member_id} and {member.member_id}"
    for place, member in owners.items():
        if group.partition_epoch(*place) != member.epoch:
            yield f"owner: {_show([place])} {title} is free, and {member.member_id} has it"


def _check_balance(assembly: Assembly, group: ConsumerGroup) -> Iterator[str]:
    title = f"unsettled: group {group.group_id}"
    if group.state is not ConsumerGroupState.STABLE:
        yield f"{title} is {group.state.value}"
    topics = assembly.broker.cluster.topics
    for regex in group.regex_subscribers:
        known, resolved = {name for name in topics if re.fullmatch(regex, name)}, group.regexes.get(regex)
        if resolved is None or known.symmetric_difference(resolved.topics) & topics.keys():
            yield f"{title} takes {regex} for {None if resolved is None else resolved.topics}, not for {sorted(known)}"
    found: Counter[GroupPartition] = Counter()
    shares: dict[str, Counter[bytes]] = {}
    for member in group.members.values():
        wanted = {topics[name].topic_id for name in _topics_of(assembly, member)}
        places = _places(member)
        found.update(places)
        shares[member.member_id] = Counter(topic_id for topic_id, _ in places)
        if not shares[member.member_id].keys() <= wanted:
            yield f"{title}: {member.member_id} has partitions of topics to which it is not subscribed"
    names = {name for member in group.members.values() for name in _topics_of(assembly, member)}
    everything = {(topics[name].topic_id, index) for name in names for index in range(topics[name].partition_count)}
    if found != Counter(everything):
        yield f"{title} has {_show(found)} of {_show(everything)}"
    if len({(each.metadata.topic_names, each.metadata.topic_regex or "") for each in group.members.values()}) == 1:
        assignors = {member.metadata.server_assignor or DEFAULT_ASSIGNOR for member in group.members.values()}
        of_each = [sum(share.values()) for share in shares.values()]
        if assignors == {"uniform"} and max(of_each) - min(of_each) > 1:
            yield f"{title} is out of balance: {of_each}"
        for topic_id in {place[0] for place in everything} if assignors == {"range"} else ():
            of_each = [share[topic_id] for share in shares.values()]
            if max(of_each) - min(of_each) > 1:
                yield f"{title} is out of balance in one topic: {of_each}"


def _topics_of(assembly: Assembly, member: ConsumerGroupMember) -> Iterator[str]:
    """Yield the existing topics that a member names, or that its regular expression matches."""
    names, regex = member.metadata.topic_names, member.metadata.topic_regex
    for name in assembly.broker.cluster.topics:
        if name in names or (regex and re.fullmatch(regex, name)):
            yield name


def _places(member: ConsumerGroupMember) -> set[GroupPartition]:
    """Return the assigned partitions of a member."""
    return {(topic_id, index) for topic_id, epochs in member.current.assigned.items() for index in epochs}


def _show(places: Any) -> str:
    return ", ".join(f"{topic_id.hex()[:6]}-{index}" for topic_id, index in sorted(places)) or "nothing"
