"""Profile, network conditions and fault plan of a run, drawn from its seed before it begins. free

The plan holds each fault that happens at a time of its own, so leaving parts of the plan out makes a failing seed
smaller.
"""

from random import Random
from typing import Final, NamedTuple

from lab.simulation.network import NetworkConditions

KILL_CALL: Final = "kill-call"
KILL: Final = "kill"
POWER: Final = "power"
STOP: Final = "stop"
STALL: Final = "stall"
RESET: Final = "reset"
MARKER: Final = "marker"
KILL_POWER: Final = "kill-power"
DISK: Final = "disk"
LEVEL: Final = "level"
MOVE: Final = "move"
STOP_BROKER: Final = "stop-broker"
CUT: Final = "cut"

RUN_MS: Final = 6000.0


class Fault(NamedTuple):
    """A fault of the plan.

    `at` is in virtual ms, for KILL_CALL a number of port calls. `value` is a duration in ms, a number of markers, a
    level of `transaction.version`, or the seed of the kind of a disk error.
    """

    kind: str
    at: float
    value: float


class Profile(NamedTuple):
    """Settings of a family of runs. Ranges are (least, most) numbers of faults."""

    name: str
    network: NetworkConditions = NetworkConditions()
    kills: tuple[int, int] = (0, 2)
    kill_calls: tuple[int, int] = (0, 2)
    power: tuple[int, int] = (0, 0)
    stops: tuple[int, int] = (0, 1)
    stalls: tuple[int, int] = (0, 3)
    resets: tuple[int, int] = (0, 3)
    markers: tuple[int, int] = (0, 2)
    call_ms: tuple[float, ...] = (0.0, 0.0, 0.4, 2.6)
    small_segments: float = 0.5
    producers: tuple[int, int] = (2, 3)
    copiers: tuple[int, int] = (0, 2)
    admin: float = 0.25
    depth: int = 0
    """The least number of batches in flight; 0 leaves it to the producers."""
    transactional_ids: int = 2
    """The number of transactional ids that the producers share."""
    level: int = 0
    """The cluster's `transaction.version`; 0 leaves it to the seed."""
    v2_clients: float = 0.8
    """Share of the transactional ids that use transactions V2, if the cluster has them."""
    verification: bool = True
    """`transaction.partition.verification.enable`."""
    flush_ms: tuple[float, ...] = ()
    """(least, most) ms until an append is flushed. Empty: appends are not flushed and count as durable at once."""
    patience_ms: float = 900.0
    """The time for which a producer waits for a reply before it retries on a new connection."""
    kill_powers: tuple[int, int] = (0, 0)
    """Kills that a power loss follows."""
    disk_errors: tuple[int, int] = (0, 0)
    level_changes: tuple[int, int] = (0, 0)
    lost_markers: float = 0.0
    """Share of the coordinator's markers whose request or reply is lost, or that arrive again later."""
    lowest_epoch: int = 0
    """The lowest initial epoch of the transactional ids, left by an earlier run of the broker; the highest is 32,766.
    0: the ids are new."""
    expires: bool = False
    """Transactional ids and producers expire after seconds."""
    hasty: float = 0.0
    """Least share of the writes that are given up as soon as they are sent: they arrive after the abort."""
    skips: bool = True
    """Whether producers may leave sequences out."""
    members: int = 0
    """The highest number of copiers that share their inputs as members of a group."""
    group_consumers: int = 0
    """The highest number of consumers in a group of the consumer protocol; another group has copiers."""
    migrates: bool = False
    """Whether these consumers are of either protocol, and come back with the other one. No group has copiers then."""
    compacts: bool = False
    """Logs roll and are compacted all the time: the internal ones and a topic with keys. Retention deletes from one
    partition of this topic."""
    greedy: int = 0
    """The number of clients that send the largest requests."""
    impatient: float = 0.0
    """Share of the producers that retry too early, and repeat requests that were answered."""
    takes_back: float = 0.0
    """Share of the lost replies after which a producer aborts and uses the same sequences again in the same epoch."""
    brokers: int = 1
    """The number of brokers of the process."""
    moves: tuple[int, int] = (0, 0)
    """Partitions that get another leader; half of them have coordinators."""
    broker_stops: tuple[int, int] = (0, 0)
    cuts: tuple[int, int] = (0, 0)
    """Links between two brokers that lose everything for a while."""
    zookeeper: bool = False
    """Blocks of producer ids are counted in ZooKeeper, and ids are taken all the time."""
    recompresses: bool = False
    """Topics have a `compression.type`, and each call on the bytes of a batch ends in a later turn than it begins in.
    """


PROFILES: Final = {
    profile.name: profile
    for profile in (
        Profile("mixed"),
        Profile("pipelined", network=NetworkConditions(reset=0.06), depth=5, kill_calls=(0, 1), copiers=(0, 0),
                hasty=0.2),
        Profile("late-markers", markers=(5, 12), call_ms=(2.6, 6.0), kill_calls=(0, 1), depth=3),
        Profile("stale", network=NetworkConditions(stall=0.05, reset=0.1, late=0.9), stalls=(2, 6), resets=(2, 6),
                hasty=0.2),
        Profile("crash", network=NetworkConditions(reset=0.0), kills=(0, 2), kill_calls=(3, 8),
                stalls=(0, 0), resets=(0, 0)),
        Profile("power", kills=(0, 1), kill_calls=(0, 2), power=(0, 3), kill_powers=(0, 2), copiers=(0, 1),
                small_segments=0.7),
        Profile("retry-during-sync", network=NetworkConditions(reset=0.04, late=0.3), flush_ms=(5.0, 100.0),
                patience_ms=40.0, kill_calls=(0, 1), depth=2, copiers=(0, 1)),
        Profile("pending-overlap", network=NetworkConditions(reset=0.04), flush_ms=(1.0, 120.0), patience_ms=200.0,
                kill_calls=(0, 1), producers=(3, 4), transactional_ids=1, copiers=(0, 1)),
        Profile("power-flushed", kills=(0, 1), kill_calls=(0, 2), power=(1, 3), kill_powers=(0, 2), copiers=(0, 1),
                small_segments=0.7, flush_ms=(0.5, 20.0)),
        Profile("unverified", network=NetworkConditions(stall=0.05, reset=0.1, late=0.9), stalls=(2, 6), resets=(2, 6),
                level=2, v2_clients=1.0, verification=False, copiers=(0, 1)),
        Profile("exhaustion", lowest_epoch=32_760, kills=(0, 1), kill_calls=(0, 3), markers=(0, 3)),
        Profile("lossy-markers", lost_markers=0.35, kill_calls=(0, 1), markers=(0, 0)),
        Profile("io-errors", disk_errors=(2, 5), kill_calls=(0, 1), small_segments=0.8),
        Profile("levels", level_changes=(1, 4), kill_calls=(0, 1)),
        Profile("expiry", network=NetworkConditions(stall_ms=200.0, late_ms=400.0), expires=True, skips=False,
                admin=0.0, kills=(0, 1), kill_calls=(0, 1), stalls=(0, 0)),
        Profile("groups", members=4, copiers=(0, 0), producers=(0, 1), kill_calls=(0, 1)),
        Profile("impatient", network=NetworkConditions(late=0.8, late_ms=1500.0), impatient=0.7, kill_calls=(0, 1)),
        Profile("greedy", greedy=2, kills=(0, 1), kill_calls=(0, 1), stops=(0, 1)),
        Profile("compaction", compacts=True, kills=(0, 2), kill_calls=(2, 6), small_segments=1.0),
        Profile("compaction-power", compacts=True, kills=(0, 1), kill_calls=(0, 3), power=(0, 2), kill_powers=(0, 2),
                small_segments=1.0, flush_ms=(0.5, 20.0)),
        Profile("recompression", network=NetworkConditions(stall=0.05, reset=0.1, late=0.5), resets=(2, 6),
                patience_ms=60.0, kill_calls=(0, 2), depth=3, hasty=0.2, recompresses=True),
        Profile("reuse", network=NetworkConditions(reset=0.1, late=0.2, late_ms=1500.0), resets=(2, 6),
                copiers=(0, 1), v2_clients=0.0, skips=False, takes_back=0.8),
        Profile("consumer-groups", group_consumers=4, copiers=(0, 0), producers=(0, 1), kill_calls=(0, 3),
                network=NetworkConditions(late=0.4)),
        Profile("consumer-groups-compaction", group_consumers=4, copiers=(0, 0), producers=(0, 1), compacts=True,
                kills=(0, 2), kill_calls=(1, 4), small_segments=1.0),
        Profile("consumer-groups-power", group_consumers=4, copiers=(0, 0), producers=(0, 0), kills=(0, 1),
                kill_calls=(0, 2), power=(1, 3), kill_powers=(0, 2), flush_ms=(0.5, 20.0)),
        Profile("consumer-groups-migration", group_consumers=4, migrates=True, copiers=(0, 0), producers=(0, 0),
                kill_calls=(0, 3), network=NetworkConditions(late=0.4)),
        Profile("moves", brokers=3, moves=(15, 60), broker_stops=(0, 3), cuts=(0, 3), kills=(0, 0), kill_calls=(0, 0),
                copiers=(0, 0), members=3, lost_markers=0.25, markers=(0, 3), network=NetworkConditions(late=0.5)),
        Profile("moves-crash", brokers=3, moves=(15, 60), broker_stops=(0, 3), cuts=(0, 3), kills=(0, 1),
                kill_calls=(1, 4), power=(0, 1), kill_powers=(0, 1), copiers=(0, 0), members=2, flush_ms=(0.5, 60.0),
                patience_ms=400.0),
        Profile("moves-groups", brokers=3, moves=(15, 60), broker_stops=(0, 3), cuts=(0, 3), group_consumers=3,
                copiers=(0, 0), producers=(0, 1), kills=(0, 1), kill_calls=(0, 2), power=(0, 1), flush_ms=(0.5, 20.0),
                network=NetworkConditions(late=0.4)),
        Profile("calm", network=NetworkConditions(stall=0, split=0, reset=0), kills=(0, 0), kill_calls=(0, 0),
                stops=(0, 1), stalls=(0, 0), resets=(0, 0), markers=(0, 0)),
        Profile("blocks", brokers=3, zookeeper=True, moves=(0, 4), broker_stops=(0, 2), kills=(0, 2), kill_calls=(0, 3),
                kill_powers=(0, 2), flush_ms=(0.5, 20.0), producers=(0, 1), copiers=(0, 0)),
    )
}  # fmt: skip
WEIGHTS: Final = (
    ("mixed", 6),
    ("crash", 4),
    ("stale", 4),
    ("late-markers", 2),
    ("pipelined", 2),
    ("power", 2),
    ("retry-during-sync", 2),
    ("pending-overlap", 2),
    ("power-flushed", 2),
    ("unverified", 1),
    ("exhaustion", 2),
    ("lossy-markers", 2),
    ("io-errors", 2),
    ("levels", 2),
    ("expiry", 1),
    ("groups", 2),
    ("impatient", 2),
    ("calm", 1),
)


def draw_profile(random: Random) -> Profile:
    names = [name for name, weight in WEIGHTS for _ in range(weight)]
    return PROFILES[random.choice(names)]


def draw_faults(random: Random, profile: Profile) -> list[Fault]:
    """Draw the fault plan of one run. The order of the faults has no meaning."""

    def some(kind: str, numbers: tuple[int, int], most: float, value: float) -> list[Fault]:
        return [
            Fault(kind, round(random.random() * most, 1), round(random.random() * value, 1))
            for _ in range(random.randint(*numbers))
        ]

    return [
        *some(KILL, profile.kills, RUN_MS, 800),
        *some(KILL_CALL, profile.kill_calls, 900, 800),
        *some(POWER, profile.power, RUN_MS, 800),
        *some(STOP, profile.stops, RUN_MS, 500),
        *some(STALL, profile.stalls, RUN_MS, 3000),
        *some(RESET, profile.resets, RUN_MS, 0),
        *some(MARKER, profile.markers, RUN_MS, 4),
        *some(KILL_POWER, profile.kill_powers, RUN_MS, 800),
        *some(DISK, profile.disk_errors, RUN_MS, 1000),
        *some(LEVEL, profile.level_changes, RUN_MS, 2.9),
        *some(MOVE, profile.moves, RUN_MS, 1000),
        *some(STOP_BROKER, profile.broker_stops, RUN_MS, 1200),
        *some(CUT, profile.cuts, RUN_MS, 800),
    ]
