"""Changes of the replicas of a partition. pure

A change names its target: the new replicas. Until all added replicas are in sync, the partition has them and the
removed ones too, and records both. Then the removed ones go, and another replica leads if the leader was one of them.

Source: `PartitionReassignmentReplicas`, `PartitionReassignmentRevert` of Kafka 4.3.1.
"""

from collections.abc import Collection, Sequence

from ottla.broker.cluster.image import PartitionRegistration
from ottla.protocol.internal_topics.metadata_records import NO_LEADER, Ids, PartitionChangeRecord


def is_in_progress(place: PartitionRegistration) -> bool:
    """Return whether replicas are still to be added or removed."""
    return bool(place.adding_replicas or place.removing_replicas)


def count_replicas_after(place: PartitionRegistration) -> int:
    """Return the number of replicas when the change in progress is complete."""
    return len({*place.replicas, *place.adding_replicas}.difference(place.removing_replicas))


def begin(place: PartitionRegistration, target: Sequence[int]) -> PartitionRegistration:
    """Add and remove replicas for a target. A target without new or old replicas keeps the change in progress."""
    removing = tuple(sorted({*place.replicas}.difference(target)))
    adding = tuple(sorted({*target}.difference(place.replicas)))
    return place._replace(
        replicas=(*target, *removing),
        removing_replicas=removing or place.removing_replicas,
        adding_replicas=adding or place.adding_replicas,
    )


def revert(place: PartitionRegistration) -> PartitionRegistration | None:
    """Return the place without the added replicas; None if none of the others is in sync."""
    replicas = tuple(each for each in place.replicas if each not in place.adding_replicas)
    isr = tuple(each for each in place.isr if each in replicas)
    return place._replace(replicas=replicas, isr=isr, removing_replicas=(), adding_replicas=()) if isr else None


def join_running(place: PartitionRegistration, running: Collection[int]) -> PartitionRegistration:
    """Let the replicas that run join the in-sync set of a partition with a leader. Only a leader stays in it without
    running: another one is about to be elected."""
    if place.leader == NO_LEADER:
        return place
    return place._replace(isr=tuple(each for each in place.replicas if each == place.leader or each in running))


def complete(place: PartitionRegistration) -> PartitionRegistration:
    """Remove what is to be removed if all that is to be added is in sync; else return the place unchanged."""
    removing, adding = place.removing_replicas, place.adding_replicas
    replicas = tuple(each for each in place.replicas if each not in removing)
    isr = tuple(each for each in place.isr if each not in removing)
    if not isr or not {*adding} <= {*isr} or (len(adding) < len(removing) and not {*replicas} <= {*isr}):
        return place
    return place._replace(replicas=replicas, isr=isr, removing_replicas=(), adding_replicas=())


def elect(place: PartitionRegistration, running: Collection[int]) -> PartitionRegistration:
    """Keep the leader if it is in sync; else let the first replica lead that is in sync and runs."""
    if place.leader in place.isr:
        return place
    able = [each for each in place.replicas if each in place.isr and each in running]
    return place._replace(leader=able[0] if able else NO_LEADER)


def settle(place: PartitionRegistration, running: Collection[int]) -> PartitionRegistration:
    """Let replicas join the in-sync set, complete the change of replicas if it can be, and elect a leader."""
    return elect(complete(join_running(place, running)), running)


def change_of(
    old: PartitionRegistration, new: PartitionRegistration, topic_id: bytes, index: int
) -> PartitionChangeRecord | None:
    """Return the record that makes a partition of the old place one of the new place; None if they are equal."""
    if old.replicas != new.replicas:
        new = new._replace(directories=_directories_of(old, new.replicas))
    changed = {name: value for name, value in new._asdict().items() if value != getattr(old, name)}
    if not {*old.replicas} <= {*new.replicas}:
        changed["leader"] = new.leader  # a new epoch begins, also if the leader stays
    return PartitionChangeRecord(index, topic_id, **changed) if changed else None


def _directories_of(old: PartitionRegistration, replicas: Sequence[int]) -> Ids:
    """Return the log directories of new replicas: that of the old ones, because all brokers of the process share it."""
    known = dict(zip(old.replicas, old.directories, strict=False))
    return tuple(known.get(each, old.directories[0]) for each in replicas) if known else ()
