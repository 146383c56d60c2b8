"""The world of one run: the broker's lives, its clients, the faults, and the violations found. free

A run has three parts. First, clients work while the faults of the plan happen. Then the faults and the clients end, the
broker runs, and every transaction must end by itself. Last, fresh consumers read everything from the start.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Final

from lab.in_memory.disk import MemoryDisk
from lab.simulation import faults
from lab.simulation.broker_parts import CountedWorkers, ErrorLog, PeerLink, count_forgotten, report_requests
from lab.simulation.causes import Causes, Generations
from lab.simulation.charged import ChargeMeter
from lab.simulation.clients import draw_clients
from lab.simulation.consumers import Consumer, Copier, KeyReader
from lab.simulation.fault_injector import FaultInjector
from lab.simulation.faults import Fault, Profile
from lab.simulation.greedy import OWN
from lab.simulation.groups.group_checks import GroupChecks
from lab.simulation.history import History
from lab.simulation.ids.takers import IdTakers
from lab.simulation.invariants import IS_OFFLINE, Invariants
from lab.simulation.move_checks import MoveChecks
from lab.simulation.network import CALM, Link
from lab.simulation.process import Process
from lab.simulation.producers import ProducerBehaviour
from lab.simulation.replay import differences
from lab.simulation.setting import (
    COPIERS_OF,
    DATA_DIR,
    GROUP,
    KEYED_PLACES,
    LEVELS,
    PRODUCERS_OF,
    TOPICS,
    config_of,
    create_topics,
    give_past,
    shrink,
)
from lab.simulation.uncompacted_copies import UncompactedCopies
from ottla.broker.assembly import Assembly
from ottla.broker.cluster.features import TRANSACTION_FEATURE
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.turns import Turns
from ottla.broker.txn.states import PREPARED
from ottla.protocol.errors import ProtocolError
from ottla.protocol.values import TopicPartition
from ottla.testkit.in_memory.ports import Killed, PortCalls
from ottla.testkit.in_memory.schedule import START_MS, Schedule, VirtualClock
from ottla.testkit.scanner import ScannedPartition, scan_contents

REST_MS: Final = 8000.0
SETTLE_MS: Final = (1200.0, 16_000.0)
"""How long consumer groups have heartbeats before they are checked, and until they must have settled."""
RESTS_MOST: Final = 3
SYNC_MS: Final = (5.0, 55.0)
"""The duration of a sync that no request waits for, (least, most) in ms."""
LONGEST_MS: Final = 60_000.0


class World:
    """A run of one seed.

    `dropped` are indexes of faults to leave out of the plan, `extra` are faults to add to it. `clients` names the only
    clients to start (None: all), `steps` ends their work early, `level` is the cluster's first `transaction.version`.
    """

    def __init__(
        self,
        seed: int,
        profile: Profile | None = None,
        dropped: Collection[int] = (),
        clients: Collection[str] | None = None,
        steps: int | None = None,
        extra: Sequence[Fault] = (),
        level: int | None = None,
    ) -> None:
        master = Random(seed)
        self.seed = seed
        self.profile = profile or faults.draw_profile(Random(master.getrandbits(64)))
        plan = faults.draw_faults(Random(master.getrandbits(64)), self.profile)
        self.plan = plan
        self._active = [fault for index, fault in enumerate(plan) if index not in dropped] + list(extra)
        self.random = Random(master.getrandbits(64))
        self._draws = Random(master.getrandbits(64))
        self.network = self.profile.network
        self.schedule = Schedule()
        self.ports = PortCalls()
        self.disk = MemoryDisk(self.ports, Random(master.getrandbits(64)), self._defer)
        self.disk.now_ms = self.wall_ms
        self.history = History(lambda: self.schedule.now_ms)
        self.violations: list[str] = []
        self.resting = False
        self.lost_power = False
        self.steps = 0
        self.kills = 0
        self.kills_while_prepared = 0
        self.assembly: Assembly | None = None
        self.only_clients = clients
        self._most_steps = steps
        self._life = 0
        self.clock: VirtualClock
        self._turns: Turns
        self.peers: list[PeerLink]
        self._links: list[Link] = []
        self.processes: list[Process] = []
        self.met: Counter[str] = Counter()
        """Counts of rare events."""
        self._invariants = Invariants(self.met)
        self.uncompacted = UncompactedCopies(self.met) if self.profile.compacts else None
        self.groups = GroupChecks(self) if self.profile.group_consumers else None
        self._trace = blake2b(digest_size=16)
        drawn = Random(master.getrandbits(64)).choice(LEVELS)
        self.level = (self.profile.level or drawn) if level is None else level
        self._config = config_of(self.level, self.profile)
        self._call_ms = self._draws.choice(self.profile.call_ms)
        self._small_segments = self._draws.random() < self.profile.small_segments
        self._kill_calls = sorted(fault for fault in self._active if fault.kind == faults.KILL_CALL)
        self._checked_at = -1
        self._later = Random(master.getrandbits(64))
        self.generations = Generations(lambda: self.level, self._draws, self.profile)
        self.causes = Causes(self.history, self.processes)
        self.faults = FaultInjector(self, Random(self._later.getrandbits(64)))
        self.moves = MoveChecks(self) if self.profile.brokers > 1 else None
        self.ids = IdTakers(self, Random(f"ids of {seed}")) if self.profile.zookeeper else None

    # --- the run

    @property
    def trace(self) -> str:
        """A digest of all events of the run."""
        return self._trace.hexdigest()

    def run(self) -> None:
        """Run the seed and collect the failures in `violations`."""
        if self.moves is None:
            self._run()
            return
        with self.moves.watch(), self.faults.leaders.slow_loads():
            self._run()

    def _run(self) -> None:
        with ErrorLog(self.faults.on_error_log).watch():
            self._boot()
            self._start_clients()
            self.faults.plan(self._active)
            self._arm_next_kill()
            self._work_until(self._is_work_over, LONGEST_MS)
            self._rest()
            if not self.violations:
                self._read_all()
            self._check_end()

    def _is_work_over(self) -> bool:
        """Return whether every client has done what the run must wait for."""
        return all(map(attrgetter("has_worked"), self.processes))

    def _work_until(self, done: Callable[[], bool], for_ms: float) -> None:
        schedule = self.schedule
        deadline_ms = schedule.now_ms + for_ms
        while schedule.now_ms < deadline_ms and not done() and not self.violations:
            if self._most_steps is not None and self.steps >= self._most_steps and not self.resting:
                return
            if not schedule.run_next():
                return
            self.steps += 1
            if self.assembly is not None and self.ports.count != self._checked_at:
                self._checked_at = self.ports.count
                self.violations.extend(self._invariants.check(self.assembly))
                if self.groups is not None:
                    self.violations.extend(self.groups.check(self.assembly))
                if self.moves is not None:
                    self.violations.extend(self.moves.check(self.assembly))
                if self.uncompacted is not None:
                    self.uncompacted.follow(self.assembly)

    def _rest(self) -> None:
        """End the faults, wait for the broker, stop all clients, and wait until the open transactions have ended."""
        self.resting = True
        self.network = CALM
        self.ports.kill_at = -1
        self.faults.end()
        self._kill_calls.clear()
        self._work_until(lambda: self.assembly is not None, 5000)
        if self.groups is not None and self.assembly is not None and not self.violations:
            self._settle_groups(self.groups)
        for process in self.processes:
            process.stop()
        found: list[str] = []
        for _ in range(RESTS_MOST):
            self._work_until(lambda: False, REST_MS)
            if self.violations:
                return
            found = ["the broker did not come back"]
            if self.assembly is not None:
                found = list(self._invariants.check_rest(self.assembly))
                found += () if self.ids is None else self.ids.check()
                if self.groups is not None:
                    found += self.groups.find_members_left(self.assembly)
            if not found:
                return  # otherwise a late request has begun another transaction, which must end as well
        self.violations.extend(found)

    def _settle_groups(self, groups: GroupChecks) -> None:
        """Wait until the consumer groups have settled: late requests may disturb them for a while."""
        least_ms, most_ms = SETTLE_MS
        began_ms = self.schedule.now_ms
        found: list[str] = []
        while self.schedule.now_ms < began_ms + most_ms and not self.violations:
            self._work_until(lambda: False, least_ms / 8)
            if self.assembly is not None and self.schedule.now_ms >= began_ms + least_ms:
                found = list(groups.find_disorder(self.assembly))
                if not found:
                    self.violations.extend(f"replay: {line}" for line in self._differences(self.assembly))
                    return
        self.violations.extend(found)

    def _read_all(self) -> None:
        """Read everything from the start with fresh consumers."""
        places = [(topic, index) for topic, count in TOPICS.items() for index in range(count)]
        self.history.note("final")
        readers: list[Process] = []
        for committed in (True, False):
            name = f"final-{'rc' if committed else 'ru'}"
            reader = Consumer(self, name, self._draws, places, committed)
            reader.start(reader.read_all, 0)
            readers.append(reader)
        for index in range(TOPICS["in"]):
            copier = Copier(
                self, f"final-offsets-{index}", self._draws, "nobody", ("in", index), [], GROUP, ProducerBehaviour()
            )
            copier.start(copier.find_position, 0)
            readers.append(copier)
        for committed in (True, False) if self.uncompacted is not None else ():
            key_reader = KeyReader(self, f"final-keys-{committed}", self._draws, KEYED_PLACES, committed)
            key_reader.start(key_reader.read_all, 0)
            readers.append(key_reader)
        self._work_until(lambda: all(reader.done for reader in readers), 5000)
        if not self.violations and not all(reader.done for reader in readers):
            self.violations.append("the final readers did not come to the end")
        if self.uncompacted is not None:
            self.uncompacted.add_to_history(self.history, KEYED_PLACES)

    def _check_end(self) -> None:
        if self.assembly is not None and not self.violations:
            self.violations.extend(f"replay: {line}" for line in self._differences(self.assembly))
            if self.moves is not None:
                self.violations.extend(self.moves.check_image(self.assembly))
            if self.uncompacted is not None:
                self.violations.extend(self.uncompacted.judge_all(self._scan()))

    def _differences(self, assembly: Assembly) -> Iterator[str]:
        expiration_ms = assembly.config.producer_id_expiration_ms if self.profile.expires else None
        if self.uncompacted is not None:
            self.uncompacted.follow(assembly)
        try:
            yield from differences(assembly, expiration_ms, self.uncompacted)
        except ProtocolError as broken:
            yield f"a log cannot be read: {broken}"

    def partitions(self) -> dict[str, ScannedPartition]:
        """Return the final logs by "topic/index" from the second scanner; of compacted logs the uncompacted copy."""
        found = {}
        for name, left in self._scan():
            topic, _, index = name.rpartition("-")
            if topic.startswith(OWN):
                continue  # the history has no entries of these
            whole = self.uncompacted is not None and name in self.uncompacted
            found[f"{topic}/{index}"] = self.uncompacted.scan(name) if self.uncompacted is not None and whole else left
        return found

    def _scan(self) -> Iterator[tuple[str, ScannedPartition]]:
        """Return the name of each partition directory with its scanned segments."""
        for name in self.disk.list(DATA_DIR):
            _topic, dash, index = name.rpartition("-")
            if dash and index.isdigit():
                files = self.disk.files_under(f"{DATA_DIR}/{name}")
                logs = [(Path(path), data) for path, data in sorted(files.items()) if path.endswith(".log")]
                yield name, scan_contents(logs)

    # --- clients

    def _start_clients(self) -> None:
        for process, script in draw_clients(self, self._draws, self._later):
            delay_ms = self._draws.random() * 400
            if self.only_clients is None or process.name in self.only_clients:
                process.start(script, delay_ms)
                self.processes.append(process)

    @property
    def clients(self) -> list[str]:
        """Names of the clients of this run."""
        return [process.name for process in self.processes]

    def connect(self, process: Process, name: str, broker: int = 0) -> Link | None:
        """Return a new connection to a broker, or None while it is down."""
        if self.assembly is None or self.first_id + broker in self.assembly.broker.cluster.stopped_ids:
            return None
        link = Link(self, process, self.assembly.accept(broker=broker), name, broker)
        self._links.append(link)
        return link

    # --- for the parts of the world

    @property
    def first_id(self) -> int:
        """The id of the first broker."""
        return self._config.node_id

    def start_of(self, place: TopicPartition) -> int:
        """Return the log start offset of a partition; 0 while the broker is down."""
        partition = None if self.assembly is None else self.assembly.broker.cluster.partition(*place)
        return 0 if partition is None else partition.log_start_offset

    def wall_ms(self) -> int:
        return START_MS + int(self.schedule.now_ms)

    def note(self, what: str, data: bytes) -> None:
        self._trace.update(b"%b%b" % (f"{self.schedule.now_ms:.3f} {what} {len(data)} ".encode(), data))

    def run_in_turn(self, work: Callable[[], None]) -> None:
        """Run code of the broker as a turn of its own."""
        self.guard(partial(self._turns.event, work))

    def guard(self, work: Callable[[], None]) -> None:
        """Run code of the broker. A kill in it ends this life of the broker."""
        try:
            work()
        except Killed:
            self._die(self._down_ms())

    # --- lives of the broker

    def _boot(self) -> None:
        self.guard(self._open)
        if self.assembly is None and self._life == 0:
            raise RuntimeError("killed before the first life")

    def _open(self) -> None:
        clock = VirtualClock(self.schedule, self.ports, self._call_ms, self.guard)
        turns = Turns(clock.next_turn, self._bug)
        clock.enter = turns.event
        self.clock, self._turns = clock, turns
        self.disk.failed_syncs = 0
        try:
            workers = CountedWorkers(self._defer, clock, self.met) if self.profile.recompresses else None
            count = self.profile.brokers
            peers = self.faults.leaders.connect_brokers(clock) if count > 1 else None
            zookeeper = None if self.ids is None else self.ids.connect(clock)
            assembly = Assembly(
                *(self._config, clock, self.disk, turns),
                workers=workers,
                broker_count=count,
                peers=peers,
                zookeeper=zookeeper,
            )
        except (LogDirectoryError, OSError) as error:
            self.faults.cannot_start(error)
            return
        assembly.dispatchers = [report_requests(each, self) for each in assembly.broker.brokers]
        if self.seed % 2:
            assembly.broker.watch()  # the event history must change nothing
        if self.profile.expires:
            count_forgotten(assembly, self.met)
        assembly.start_housekeeping()
        self._life += 1
        if self._life == 1:
            turns.event(lambda: self._furnish(assembly))  # no client is connected yet that could wait
        ChargeMeter(turns, self._on_exceeded)
        self.peers = [PeerLink(each, self) for each in assembly.broker.brokers]
        if self._small_segments:
            cluster = assembly.broker.cluster
            for topic in cluster.topics.values():  # opens the partitions, which are still closed after a clean stop
                for index in range(topic.partition_count):
                    cluster.partition(topic.name, index)
            for partition in cluster.partitions():
                shrink(partition, self.profile)
        violations = self._invariants.began_life(assembly)
        if self.disk.errors.failures:  # the broker has logged this already, and a repair is scheduled
            violations = (each for each in violations if IS_OFFLINE not in each)
        self.violations.extend(violations)
        if self.uncompacted is not None:
            self.uncompacted.began_life(assembly)
        if self.groups is not None:
            self.groups.began_life(assembly)
        if self.moves is not None:
            self.moves.began_life()
        if self.ids is not None:
            self.ids.began_life(assembly)
        self.assembly = assembly
        self.level = assembly.broker.cluster.feature(TRANSACTION_FEATURE)
        self.note(f"life {self._life}", b"")

    def _furnish(self, assembly: Assembly) -> None:
        create_topics(assembly, self.profile)
        lowest = self.profile.lowest_epoch
        if lowest:
            ids = (*PRODUCERS_OF, *COPIERS_OF)
            give_past(assembly, ids, lowest, self.level, self.wall_ms(), Random(self._later.getrandbits(64)))

    def _die(self, down_ms: float) -> None:
        """End this life of the broker and schedule the next start."""
        self.kills += 1
        if self.assembly is not None and any(
            state.status in PREPARED
            for shard in self.assembly.broker.transaction_shards()
            for state in shard.states.values()
        ):
            self.kills_while_prepared += 1
        self.clock.alive = False
        self.assembly = None
        for link in self._links:
            link.on_broker_death()
        self._links.clear()
        self.causes.forget()
        self.note("dead", b"")
        self.start_later(down_ms)

    def start_later(self, delay_ms: float) -> None:
        """Start the broker after a delay, unless it runs by then."""
        self.schedule.after(delay_ms, self._revive)

    def _revive(self) -> None:
        if self.assembly is None:
            self._arm_next_kill()
            self.guard(self._open)

    def kill(self, down_ms: float) -> None:
        if self.assembly is not None:
            self._die(down_ms)

    def lose_power(self, down_ms: float) -> None:
        if self.assembly is not None:
            self._die(down_ms)
        if self.profile.flush_ms:
            self._invariants.find_lost_writes()
        else:
            self.lost_power = True
            self._invariants.lost_power()
        if self.groups is not None:
            self.groups.lost_power(keeps_answered=not self.lost_power)
        if self.uncompacted is not None:
            self.uncompacted.lost_power()
        self.disk.lose_power()

    def stop(self, down_ms: float) -> None:
        """Stop the broker cleanly and schedule the next start."""
        while (assembly := self.assembly) is not None and assembly.broker.logs.flusher.busy:
            self.guard(assembly.broker.logs.flusher.start)
            self.disk.end_syncs()
        if assembly is None:
            return
        if assembly.broker.logs.offline is None:
            with self.disk.errors.suspend():
                self.violations.extend(f"replay: {line}" for line in self._differences(assembly))
        self.guard(assembly.close)
        if self.assembly is not None:
            self._die(down_ms)

    def _down_ms(self) -> float:
        return self.random.random() * 600

    def _arm_next_kill(self) -> None:
        while self._kill_calls and self.ports.kill_at < 0:
            at = int(self._kill_calls.pop(0).at)
            if at > self.ports.count:
                self.ports.kill_at = at

    def end_connections(self, broker: int) -> None:
        """Close all connections of a broker, which stops."""
        for link in self._links:
            if link.broker == broker:
                link.closed_by_broker()

    def alive_links(self) -> list[Link]:
        self._links = [link for link in self._links if link.open_to_client or link.open_to_broker]
        return [link for link in self._links if link.open_to_client]

    def _defer(self, work: Callable[[], None]) -> None:
        """Schedule the end of a sync after a random time in the profile's range, mostly near its lower end."""
        least_ms, most_ms = self.profile.flush_ms or SYNC_MS
        self.schedule.after(least_ms + (most_ms - least_ms) * self.random.random() ** 2, work)

    def _on_exceeded(self, what: str, cost_us: float) -> None:
        self.violations.append(f"held: {what} was charged {cost_us / 1000:.1f} ms in one turn")

    def _bug(self, error: Exception) -> None:
        self.violations.append(f"bug: {error!r}")
