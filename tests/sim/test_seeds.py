"""Seeds of the simulation: every profile, every fault, judged by the invariants, the replay and the checker."""

import gc
import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from lab.simulate import outcomes
from lab.simulation.faults import KILL_CALL, PROFILES, Fault
from lab.simulation.groups.commit_checks import CommittedOffsets
from lab.simulation.groups.membership import Membership
from lab.simulation.outcome import judge, run_seed
from lab.simulation.plants import PLANTS
from lab.simulation.process import Process
from lab.simulation.producers import Producer, ProducerBehaviour
from lab.simulation.shrink import shrink
from lab.simulation.world import World
from ottla.broker.group.commits import CommitRow, OffsetCommits
from ottla.broker.group.members import Caller
from ottla.broker.log.segments.log_segments import LogSegments
from ottla.protocol.errors import ErrorCode
from tests.timeout import EVENT_TIMEOUT_S

SHOWN_MOST = 5
BACK = ["offset-went-back"]
OF_CONSUMER_GROUPS = (
    "consumer-groups",
    "consumer-groups-compaction",
    "consumer-groups-power",
)
# The same in each run, until some thousands of others have been clean.
SEEDS_OF_MOVES = {"moves": range(2300, 2304), "moves-crash": range(3000, 3004), "moves-groups": range(3000, 3004)}
SEEDS_OF_BLOCKS = range(3000, 3008)
# The same in each run: among 5,000 others one may meet a rule of Kafka that the simulation does not count yet.
SEEDS_OF_MIGRATION = range(70_000, 70_030)


@pytest.fixture
def collected_seldom():
    """A world is garbage as a whole when its seed has run; `outcomes` collects it then."""
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def test_simulated_seeds_violate_no_guarantee(seeds, collected_seldom):
    """Report each failing seed with the command that runs it again. A hundred seeds take 4 s of CPU time."""
    check_all(seeds, None)


@pytest.mark.parametrize("profile", SEEDS_OF_MOVES)
def test_simulated_moves_violate_no_guarantee(profile, collected_seldom):
    """Run some seeds of each profile with several brokers. One takes 0.5 s of CPU time."""
    check_all(SEEDS_OF_MOVES[profile], profile)


def test_simulated_blocks_of_producer_ids_violate_no_guarantee(collected_seldom):
    check_all(SEEDS_OF_BLOCKS, "blocks")


@pytest.mark.parametrize(("place", "profile"), [*enumerate(OF_CONSUMER_GROUPS)])
def test_simulated_consumer_groups_violate_no_guarantee(seeds, place, profile, collected_seldom):
    """Run one of the seeds in each profile that no seed draws by itself. It takes 0.4 s of CPU time."""
    check_all(seeds[15 * place :: 100], profile)


def test_simulated_migrations_violate_no_guarantee(collected_seldom):
    check_all(SEEDS_OF_MIGRATION, "consumer-groups-migration")


def check_all(seeds, profile):
    """Fail with the seeds that violate a guarantee, and the commands that run them again."""
    failing, known = [], Counter()
    for outcome in outcomes(seeds, profile, None, 1):
        known.update(line[line.rindex("(by") :] for line in outcome.known)
        if outcome.problems:
            failing.append(outcome)
        if len(failing) == SHOWN_MOST:
            break
    if failing:
        smallest = shrink(failing[0], PROFILES[profile] if profile else None)
        told = [f"seed {each.seed} ({each.profile}): {each.problems[0]}\n{command(each, profile)}" for each in failing]
        told.append(f"The first one, made smaller: {smallest.outcome.problems}\n{smallest.command(profile)}")
        pytest.fail("\n".join(told), pytrace=False)
    assert set(known) <= {"(by late-end)", "(by late-offsets)", "(by late-marker)", "(by mixed-generations)"}


def command(outcome, profile):
    """Return the command that runs the seed again."""
    return f"python -m lab.simulate --seed {outcome.seed}" + (f" --profile {profile}" if profile else "")


@pytest.mark.parametrize(("seed", "first"), [(3, 140), (11, 141)])
def test_a_kill_at_any_port_call_loses_nothing(seed, first):
    """Before or after every append, write and timer of a short run, so between Prepare and Complete too.

    The two runs take every fourth call, from `first` on, when the topics are made.
    """
    calm, clients = PROFILES["calm"], ["p0", "p1", "c0", "feed"]
    quiet = World(seed, calm, clients=clients, steps=150)
    quiet.run()
    assert quiet.violations == []
    killed = prepared = 0
    for call in range(first, quiet.ports.count, 4):
        kill = Fault(KILL_CALL, call, 0)
        world = World(seed, calm, clients=clients, steps=150, extra=[kill])
        world.run()
        assert judge(world).problems == [], f"killed at port call {call}"
        killed += world.kills
        prepared += world.kills_while_prepared
    assert killed > 25
    assert prepared > 1


def test_an_epoch_that_is_given_again_after_a_power_loss_overtakes_nothing():
    """The coordinator forgot the epoch, the partition did not: its second owner is refused until it meets the sequence
    that stands in the log."""
    outcome = run_seed(95714221, clients=["p0", "p1", "p2"], dropped=range(4), steps=140)
    assert outcome.met["kills before a power loss"] == 1
    assert outcome.problems == []


def test_a_producer_that_is_fenced_between_two_transactions_names_what_it_still_writes():
    """The checker counts what such a zombie ends by the name of the transaction."""
    producer = Producer(World(7, PROFILES["levels"]), "p0", Random(7), "id", [("in", 0)], ProducerBehaviour())
    named = []

    def request(*arguments):
        named.append(producer.txn)
        return ()

    producer.produce = producer.end = request
    assert list(producer.act_as_zombie()) == []
    assert named and set(named) == {"p0/1"}


TRACES = """
from lab.simulation.outcome import judge, run_seed
from lab.simulation.faults import PROFILES
print(" ".join(run_seed(1, PROFILES[name]).trace for name in sorted(PROFILES)))
"""


def test_a_seed_has_the_same_trace_for_any_hash_seed():
    found = set()
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ran = subprocess.run(
            [sys.executable, "-c", TRACES],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=EVENT_TIMEOUT_S,
        )
        found.add(ran.stdout)
    assert len(found) == 1
    assert len(set(found.pop().split())) == len(PROFILES)


def test_a_delayed_end_hits_the_next_transaction_of_transactions_v1_alone():
    """KAFKA-17754: transactions V1 have no epoch of their own, so the broker cannot distinguish them."""
    hit = []
    for seed in range(60):
        old = run_seed(seed, PROFILES["impatient"], level=1)
        assert old.problems == []
        if any("(by late-end)" in line for line in old.known):
            hit.append(seed)
        if len(hit) == 3:
            break
    assert hit
    for seed in {*range(20), *hit}:
        new = run_seed(seed, PROFILES["impatient"]._replace(v2_clients=1.0), level=2)
        assert (new.problems, new.known) == ([], [])


OF_MOVES = [
    "messages between brokers stalled",
    "answers FENCED_LEADER_EPOCH",
    "answers NOT_COORDINATOR",
    "answers NOT_LEADER_OR_FOLLOWER",
    "brokers started",
    "brokers stopped",
    "connections refused",
    "coordinators moved",
    "leaders moved",
    "links cut",
]
# What a run of each profile must come across, in so many seeds: a profile that never does proves nothing.
MET = {
    "exhaustion": ["producer ids replaced"],
    "lossy-markers": ["marker requests lost", "marker replies lost", "late markers"],
    "io-errors": [
        "ENOSPC of append",
        "EIO of append",
        "EIO of open",
        "EIO of sync",
        "EIO of pread",
        "starts that failed",
    ],
    "levels": [
        f"transaction.version {before} to {after}" for before, after in ((2, 0), (2, 1), (1, 0), (0, 2), (1, 2))
    ],
    "expiry": ["transactional ids forgotten", "producers forgotten"],
    "groups": ["commits refused to members of the past"],
    "impatient": ["repeated requests"],
    "reuse": ["sequences taken back", "reused sequences refused"],
    "recompression": ["calls of workers", "calls of workers given up"],
    "power": ["kills before a power loss"],
    "power-flushed": ["kills before a power loss"],
    "compaction": ["records compacted away", "markers compacted away", "records deleted by retention"],
    "compaction-power": ["records compacted away", "kills before a power loss"],
    "consumer-groups": [
        "commits of members",
        "commits of members refused",
        "commits refused to members of the past",
        "fetches of members refused",
        "group members that crashed",
        "group members that paused",
        "late heartbeats",
        "members that had been removed",
        "members that left",
        "requests to change topics",
        "revocations that are not acknowledged",
        "static members that left for a while",
    ],
    "blocks": ["ids given", "kills before a power loss", "nodes deleted", "nodes set back", "outages of ZooKeeper"],
    "moves": [
        *OF_MOVES,
        "messages between brokers stalled",
        "group generations joined",
        "late markers",
        "marker requests lost",
    ],
    "moves-crash": [*OF_MOVES, "group generations joined", "kills before a power loss"],
    "moves-groups": [*OF_MOVES, "commits of members", "members that had been removed"],
    "consumer-groups-compaction": ["records compacted away", "members that had been removed"],
    "consumer-groups-power": ["kills before a power loss", "members that had been removed"],
    "consumer-groups-migration": [
        "assignments of classic members",
        "classic members that had been removed",
        "classic members that left",
        "commits of members",
        "commits of members refused",
        "groups downgraded",
        "groups of both protocols",
        "groups upgraded",
        "groups with resolved regular expressions",
        "late heartbeats",
        "members of a withdrawn assignment",
        "members that changed to the classic protocol",
        "members that changed to the consumer protocol",
    ],
}


def test_retention_may_delete_what_the_cleaner_is_about_to_read():
    """The segment was gone between two of its slices, and the cleaner took that for a disk that fails."""
    assert run_seed(6, PROFILES["compaction"]).problems == []


@pytest.mark.parametrize("profile", MET)
def test_a_profile_causes_its_faults_and_violates_no_guarantee(profile):
    met = Counter()
    for seed in range(60):
        outcome = run_seed(seed, PROFILES[profile])
        assert outcome.problems == [], f"seed {seed}"
        met.update(outcome.met)
        if all(met[name] for name in MET[profile]):
            break
    assert [name for name in MET[profile] if not met[name]] == []


@pytest.mark.plain
def test_reused_sequences_are_fatal_only_if_the_rule_is_switched_off():
    """OUT_OF_ORDER_SEQUENCE_NUMBER is fatal for a client of this habit, UNKNOWN_PRODUCER_ID aborts a transaction."""
    met = Counter()
    for seed in range(20):
        met.update(run_seed(seed, PROFILES["reuse"]).met)
    assert met["reused sequences refused"] > 10
    assert met["fatal sequences"] == 0
    with PLANTS["reuse-acknowledged"]():
        assert any(run_seed(seed, PROFILES["reuse"]).met.get("fatal sequences") for seed in range(60))


@pytest.mark.parametrize("level", [1, 2])
def test_epoch_32760_races(level):
    """Zombies, retries and timeouts around the last epochs of a producer id, and a kill at every fourth port call: the
    id is replaced once, no epoch is negative, every transaction ends."""
    racing = PROFILES["calm"]._replace(lowest_epoch=32_760, v2_clients=1.0, producers=(3, 3), transactional_ids=1)
    for seed in range(40):
        replaced = run_seed(seed, racing, level=level)
        assert replaced.problems == []
        if replaced.met.get("producer ids replaced"):
            break
    options = {"level": level, "clients": ["p0", "p1", "p2"], "steps": 200}
    quiet = World(seed, racing, **options)
    quiet.run()
    assert quiet.met["producer ids replaced"]
    met = Counter()
    for call in range(140 + level % 2, quiet.ports.count, 4):
        outcome = run_seed(seed, racing, extra=[Fault(KILL_CALL, call, 0)], **options)
        assert outcome.problems == [], f"killed at port call {call}"
        met.update(outcome.met)
    assert met["producer ids replaced"] > 25


@pytest.mark.parametrize("level", [1, 2])
def test_markers_with_lost_requests_and_lost_replies(level):
    """A marker that is sent again after it was written, or arrives seconds after that, ends one transaction once."""
    lossy = PROFILES["calm"]._replace(lost_markers=0.5, v2_clients=1.0)
    met, causes = Counter(), Counter()
    for seed in range(20):
        outcome = run_seed(seed, lossy, level=level)
        assert outcome.problems == [], f"seed {seed}"
        causes.update(line[line.rindex("(by") :] for line in outcome.known)
        met.update(outcome.met)
    assert min(met["marker requests lost"], met["marker replies lost"], met["late markers"]) > 20
    assert level == 1 or not causes  # KIP-890 gives each transaction an epoch of its own


def test_a_commit_of_a_past_member_that_counts_is_noticed(monkeypatch):
    monkeypatch.setattr(OffsetCommits, "_commit_error", lambda *_: ErrorCode.NONE)
    assert any(run_seed(seed, PROFILES["groups"]).problems for seed in range(30))


def commit(offsets, member_id, offset, clients=(), topic_id=bytes(16)):
    """Return the kinds of the problems of a commit."""
    row = CommitRow("g0", 0, offset, -1, "", topic_id=topic_id)
    return [line.partition(":")[0] for line in offsets.follow(Caller("g", 1, member_id, None), row, clients)]


def test_an_offset_that_another_member_takes_back_is_noticed():
    offsets = CommittedOffsets(Counter())
    assert (
        commit(offsets, "a", 5) == commit(offsets, "b", 5) == commit(offsets, "b", 3) == commit(offsets, "a", 3) == []
    )
    new = bytes(15) + b"1"
    assert commit(offsets, "b", 1, topic_id=new) == []  # a topic of the same name
    assert commit(offsets, "a", 0, topic_id=new) == BACK


def test_an_offset_of_an_overtaken_client_does_not_bind_the_member_that_holds_the_partition():
    world = World(0, PROFILES["consumer-groups-migration"])
    owner, other = (Membership(Process(world, name, Random(0)), "g", ["g0"]) for name in ("owner", "other"))
    owner.owned = {(bytes(16), 0)}
    for is_overtaken, is_held, expected in [(True, True, []), (False, True, BACK), (True, False, BACK)]:
        offsets = CommittedOffsets(Counter())
        other.is_overtaken = is_overtaken
        clients = [owner, other] if is_held else [other]
        assert commit(offsets, owner.member_id, 3) == commit(offsets, other.member_id, 6, clients) == []
        assert commit(offsets, owner.member_id, 4, clients) == expected
        assert commit(offsets, "third", 2, clients) == BACK  # below what the owner has committed


@pytest.mark.parametrize(
    "seed",
    [71_619, 73_651, 73_980, 75_962, 76_040, 79_064, 80_513, 81_100, 82_949, 83_354, 85_182, 88_356],
    ids=[
        "topic-deleted-after-the-leader-restarted",
        "topic-deleted-after-a-downgrade",
        "restarts-with-another-subscription",
        "killed-when-an-empty-group-is-replaced",
        "topic-created-after-a-downgrade",
        "downgraded-in-the-generation-of-the-upgrade",
        "joins-after-its-removal",
        "topic-created-again",
        "assignments-withdrawn",
        "restarts-before-it-gives-up",
        "leader-restarts",
        "joins-after-its-removal-and-moves-on",
    ],
)
def test_migration_by_the_rules_of_kafka_fails_no_check(seed):
    assert run_seed(seed, PROFILES["consumer-groups-migration"]).problems == []


@pytest.mark.plain
def test_an_append_that_fails_and_is_acknowledged_is_noticed(monkeypatch):
    write = LogSegments.append

    def careless(self, *arguments):
        with suppress(OSError):
            write(self, *arguments)

    monkeypatch.setattr(LogSegments, "append", careless)
    assert any(run_seed(seed, PROFILES["io-errors"]).problems for seed in range(30))


@pytest.mark.plain
def test_a_failing_seed_is_made_smaller_and_fails_again():
    profile = PROFILES["mixed"]
    with PLANTS["aborted-list-empty"]():
        failing = next(outcome for seed in range(40) if (outcome := run_seed(seed, profile)).problems)
        smaller = shrink(failing, profile)
        assert smaller.outcome.signature == failing.signature
        assert len(smaller.dropped) == len(failing.plan)
        assert smaller.steps < failing.steps
        again = run_seed(failing.seed, profile, dropped=smaller.dropped, clients=smaller.clients, steps=smaller.steps)
    assert again.trace == smaller.outcome.trace
    assert f"--seed {failing.seed}" in smaller.command("mixed")
