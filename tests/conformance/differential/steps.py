"""The script language: what one raw client asks of a broker about idempotence and transactions, step by step.

A script is a name and a list of steps; a step is a dict of JSON values with its operation under "op". Scripts name
things of their own: handles ("A": a producer id and epoch, as the last successful `init`, or `foreign`, or `alias`
gave it), transactional ids and groups by one letter, partitions of the script's own topic by number (it has two) or
another topic's as [topic, number]. `player.py` plays a script to a broker and lists the answers.

After `init` and `end` the player waits until the transactional id has written its markers, where `settle` is true:
Kafka answers before they are written, so what the next step meets would be a race.
"""

import hashlib
import json
from typing import NamedTuple

PARTITIONS = (0, 1)
# A transaction that is to time out, but not before the script has seen it open.
SHORT_MS = 1500


class Script(NamedTuple):
    """`steps` without the epilogue, which every script ends with that does not say otherwise."""

    name: str
    steps: list
    looks_back: bool = True

    @property
    def all_steps(self):
        return self.steps + epilogue(self.steps) if self.looks_back else self.steps

    @property
    def digest(self):
        """Return a digest of the steps, which shows whether a recording belongs to the current script."""
        return hashlib.sha256(json.dumps(self.all_steps, sort_keys=True).encode()).hexdigest()[:16]


def _step(op, **arguments):
    return {"op": op} | arguments


def init(who, id="t", *, version=4, timeout_ms=60_000, expected=None, settle=True, two_phase=None, keep=None):
    """InitProducerId; on success `who` is the answer. `expected`: a handle, or [producer id, epoch]. `two_phase` and
    `keep` are flags of version 6."""
    arguments = {"who": who, "id": id, "version": version, "timeout_ms": timeout_ms, "expected": expected}
    flags = {"enable2_pc": two_phase, "keep_prepared_txn": keep}
    given = {name: flag for name, flag in flags.items() if flag is not None}
    return _step("init", **arguments, settle=settle, **({"flags": given} if given else {}))


def init_many(who, times, id="t"):
    """InitProducerId `times` times in a pipeline; `who` is the last answer, which is reported."""
    return _step("init_many", who=who, id=id, times=times)


def foreign(who, epoch=0, number=0, id="t"):
    """Makes a handle of a producer id that no coordinator gave out."""
    return _step("foreign", who=who, epoch=epoch, number=number, id=id)


def alias(who, of, *, epoch=0, producer_id=0, id=None):
    """Makes a handle from another one, its epoch and producer id moved by so much, perhaps of another id."""
    return _step("alias", who=who, of=of, epoch=epoch, producer_id=producer_id, id=id)


def add(who, partitions=(0,), *, version=3):
    return _step("add", who=who, partitions=list(partitions), version=version)


def add_offsets(who, group="g", *, version=3):
    return _step("add_offsets", who=who, group=group, version=version)


def end(who, commit=True, *, version=3, settle=True):
    return _step("end", who=who, commit=commit, version=version, settle=settle)


def commit(who, **options):
    return end(who, True, **options)


def abort(who, **options):
    return end(who, False, **options)


def produce(who, partition=0, n=1, *, seq=None, shift=0, again=0, txn=None, name=True, version=9, acks=-1, size=0):
    """Produce a batch of `n` records.
    The sequence is the next one of this handle and partition moved by `shift`, unless `seq` gives it; `again=k` sends
    the sequences of the k-th last batch once more. `txn`: whether the batch is transactional (by default: whether the
    handle has a transactional id); `name`: whether the request names the transactional id then. Values have `size`
    bytes at least.
    """
    arguments = {"who": who, "partition": partition, "n": n, "seq": seq, "shift": shift, "again": again}
    return _step("produce", **arguments, txn=txn, name=name, version=version, acks=acks, size=size)


def produce_many(batches, *, id=None, version=9):
    """Send several batches, rows of `batch`, in one request. `id`: the transactional id that the request names."""
    return _step("produce_many", batches=batches, id=id, version=version)


def batch(who, partition=0, seq=0, n=1, *, txn=True):
    return {"who": who, "partition": partition, "seq": seq, "n": n, "txn": txn}


def txn_offset_commit(
    who,
    offsets,
    group="g",
    *,
    version=3,
    generation=-1,
    member="",
    instance=None,
    metadata="",
    leader_epoch=-1,
    of=None,
    shift=0,
):
    """`offsets`: rows of [partition, offset]. `of`: a member that joined; its generation is moved by `shift`."""
    arguments = {"who": who, "offsets": offsets, "group": group, "version": version, "generation": generation}
    return _step(
        "txn_offset_commit",
        **arguments,
        member=member,
        instance=instance,
        metadata=metadata,
        leader_epoch=leader_epoch,
        **({"of": of, "shift": shift} if of else {}),
    )


def offset_fetch(group="g", partitions=PARTITIONS, *, stable=False, version=8):
    return _step("offset_fetch", group=group, partitions=list(partitions), stable=stable, version=version)


def fetch(partition=0, isolation=0, offset=0, *, version=12, max_bytes=1 << 20):
    where = {"partition": partition, "isolation": isolation, "offset": offset}
    return _step("fetch", **where, version=version, max_bytes=max_bytes)


def list_offsets(partition=0, isolation=0, timestamp=-1, *, version=7):
    """`timestamp` >= 0 counts milliseconds from the script's first record."""
    return _step("list_offsets", partition=partition, isolation=isolation, timestamp=timestamp, version=version)


def write_markers(markers, *, version=1):
    """WriteTxnMarkers with several markers: rows of `marker`."""
    return _step("write_markers", markers=markers) | ({"version": version} if version > 1 else {})


def marker(who, partitions=(0,), commit=True, *, coordinator_epoch=0, generation=0):
    row = {"who": who, "partitions": list(partitions), "commit": commit, "coordinator_epoch": coordinator_epoch}
    return row | ({"generation": generation} if generation else {})


def add_many(rows, *, version=5):
    """AddPartitionsToTxn as brokers send it: rows of `joining`."""
    return _step("add_many", rows=rows, version=version)


def joining(who, partitions=(0,), *, verify=False):
    return {"who": who, "partitions": list(partitions), "verify": verify}


def describe_producers(partitions=PARTITIONS):
    return _step("describe_producers", partitions=list(partitions))


def describe_transactions(ids=("t",)):
    return _step("describe_transactions", ids=list(ids))


def list_transactions(who, states=()):
    return _step("list_transactions", who=who, states=list(states))


def list_matching(whos=None, *, pattern=None, states=(), duration_ms=-1, version=2):
    """ListTransactions 1-2; {} in the pattern stands for what the names of the script begin with."""
    asked = {"states": list(states), "duration": duration_ms, "version": version}
    return _step("list_matching", whos=whos and list(whos), pattern=pattern, **asked)


def level(to=None):
    """UpdateFeatures of `transaction.version`; None is what it was when the script began. The player restores it."""
    return _step("level", to=to)


def listed_versions(api_key):
    """Ask ApiVersions for the lowest and the highest version of an API."""
    return _step("listed_versions", api_key=api_key)


def find_coordinator(*ids, kind=1, version=4):
    return _step("find_coordinator", ids=list(ids), kind=kind, version=version)


def logged(id="t"):
    """Read the records that the coordinator wrote about a transactional id."""
    return _step("logged", id=id)


def logged_group(group="g"):
    """The offsets in the log of the group's partition, and the markers of the script's producers there."""
    return _step("logged_group", group=group)


def join(member, group="g", *, instance=None, sync=True, wait=True):
    """JoinGroup and SyncGroup as the consumer `member`; without `wait` the answer is left where it is."""
    return _step("join", member=member, group=group, instance=instance, sync=sync, wait=wait)


def leave(member, group="g"):
    return _step("leave", member=member, group=group)


def meet(begin, ended, asked):
    """`asked` right behind `ended` (an `end` without `settle`), so that it meets the marker phase.

    Whether it does is a race that Kafka may win: then all of it is repeated, from the steps of `begin`. The answer is
    that of `asked`.
    """
    return _step("meet", begin=begin, ended=ended, asked=asked)


def await_timeout(id="t"):
    """Waits until the coordinator has ended the transaction of the id by its timeout."""
    return _step("await_timeout", id=id)


def pause(milliseconds):
    """Gives markers that will be refused the time to be refused."""
    return _step("pause", milliseconds=milliseconds)


def epilogue(steps):
    """Return the last steps of every script, which read logs, offsets, producers, transactions and groups."""
    ids = sorted({step["id"] for step in steps if step.get("id")})
    groups = sorted({step["group"] for step in steps if step.get("group")})
    used = [p for p in PARTITIONS if any(_touches(step, p) for step in steps)]
    look = [describe_transactions(ids)] if ids else []
    for partition in used:
        look += [fetch(partition, isolation) for isolation in (0, 1)]
        look += [list_offsets(partition, isolation) for isolation in (0, 1)]
    look += [describe_producers(used)] if used else []
    look += [offset_fetch(group, stable=stable) for group in groups for stable in (False, True)]
    return look + [logged(id) for id in ids] + [logged_group(group) for group in groups]


def _touches(step, partition):
    places = [step.get("partition"), *step.get("partitions", ())]
    for row in (*step.get("markers", ()), *step.get("rows", ())):
        places += row["partitions"]
    places += [row["partition"] for row in step.get("batches", ())]
    return partition in places
