"""Producers and copiers of one client library, while leaders and coordinators of `ottla serve --brokers 3` move.

Brokers stop, pause and lose their links, too. Two producers commit or abort transactions of a few records. Two copiers
of each group copy what is committed, with their offsets in the same transaction. At the end no record may be missing or
twice. A copier that makes no progress is replaced by a new process, and its requests are written to a file.

    PYTHONPATH=. python tests/conformance/several_brokers_load.py java --changes 4000 --directory DIR
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from broker_changes import Changes
from clients import DriverError, lacks, start_client

from ottla.testkit.history.events import events
from ottla.testkit.history.journal_entries import entry_from_json
from ottla.testkit.kit.broker import Broker
from ottla.testkit.kit.process import BrokerProcess
from ottla.testkit.kit.wire import KafkaError
from ottla.testkit.scanner import scan_partition

# aiokafka sends neither its member id with offsets of a transaction, nor asks for stable offsets: only one member of
# a group, with one transactional id, copies each record once.
GROUPS = {
    "aiokafka": {"classic": 1},
    "confluent-kafka": {"classic": 2, "consumer": 2},
    "franz-go": {"classic": 2, "consumer": 2},
    "java": {"classic": 2, "consumer": 2},
    "kafka-python": {"classic": 2},
}
"""For each client the protocols of its groups, with their number of members."""
SOURCE, PARTITIONS, PRODUCERS = "in", 6, 2
TRANSACTION_TIMEOUT_MS = 20_000
# A coordinator that has moved waits a whole session for each member, as Apache Kafka's does. If it moves more often, a
# member that ended without a leave keeps its partitions. So sessions are short.
PROPERTIES = {
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "2000",
    "group.min.session.timeout.ms": "2000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
LOOK_S, HUNG_S, END_S = 4, 60, 300
MOST_FILES = 8
PAUSE_S = 0.01
TIMEOUTS = ("Timeout", "_TIMED_OUT", "_IN_PROGRESS")


def sink_of(protocol):
    return f"copied-{protocol}"


class Progress:
    """The progress of a worker, its current step, and the errors that it met."""

    def __init__(self, name):
        self.name, self.errors, self.instances, self.hung = name, Counter(), 1, 0
        self.count, self.step = 0, "start"
        self._seen, self._looked, self._idle_s = 0, time.monotonic(), 0.0

    def look(self):
        """Add the time since the last look, if nothing has happened. A machine without time to look proves nothing."""
        now = time.monotonic()
        self._idle_s = 0.0 if self.count != self._seen else self._idle_s + min(now - self._looked, LOOK_S)
        self._seen, self._looked = self.count, now

    def restart(self):
        self._idle_s = 0.0
        self.instances += 1

    @property
    def is_hung(self):
        return self._idle_s > HUNG_S


class Producer(threading.Thread):
    """A producer of transactions in a process of its own. `committed`, `aborted` and `unknown` have their values."""

    def __init__(self, name, library, bootstrap, directory, seed):
        super().__init__(name=name, daemon=True)
        self.progress, self.stopping = Progress(name), threading.Event()
        self.committed, self.aborted, self.unknown = [], [], []
        self._library, self._address, self._directory = library, bootstrap, directory
        self._dice, self._number, self._handle = random.Random(f"{seed}-{name}"), 0, None
        self._start_process()

    def _start_process(self):
        self._handle, self.client = None, start_client(self._library, self._address, self._directory)

    def run(self):
        while not self.stopping.is_set():
            try:
                if self._handle is None:
                    self._open()
                else:
                    self._transact()
                    time.sleep(PAUSE_S)
            except (AssertionError, OSError, ValueError):  # the process was killed, because it hung
                self._start_process()

    def kill(self):
        """Kill the process; another one continues."""
        self.progress.hung += 1
        self.progress.restart()
        self.client.kill()

    def _call(self, step, *arguments):
        """Return the error of a step, or None."""
        self.progress.step = step
        try:
            getattr(self._handle, step)(*arguments)
        except DriverError as error:
            self._count(step, error)
            return error
        return None

    def _count(self, step, error):
        self.progress.errors[f"{step}: {error.kind}"] += 1
        print(f"{self.name} {time.time():.3f} {step}: {error}", file=sys.stderr)

    def _open(self):
        self.progress.step = "init"
        try:
            self._handle = self.client.producer(self.name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        except DriverError as error:
            self._count("init", error)
            time.sleep(1)

    def _transact(self):
        values = [f"{self.name}-{self._number + i}" for i in range(self._dice.randint(1, 6))]
        rows = [(SOURCE, self._dice.randrange(PARTITIONS), value, value, ()) for value in values]
        self._number += len(values)
        fate = self.unknown
        try:
            fate = self._end(rows, commit=self._dice.random() > 0.15)
        finally:
            fate += values
        self.progress.count = self._number

    def _end(self, rows, commit):
        """Return the list to which the values of a transaction belong."""
        if self._call("begin"):
            self._replace()
            return self.aborted
        if not self._call("send_records", rows) and commit:
            error = self._call("commit")
            while error is not None and any(each in error.kind for each in TIMEOUTS) and not error.is_fenced:
                error = self._call("commit")
            if error is None:
                return self.committed
            if self._call("abort"):
                self._replace()
                return self.unknown
        elif self._call("abort"):
            self._replace()
        return self.aborted

    def _replace(self):
        """Close this producer. The next one has the same transactional id."""
        self._call("close")
        self._handle = None
        self.progress.instances += 1


class Copier:
    """A copier in a process of its own, which is replaced if it makes no progress."""

    def __init__(self, name, library, protocol, bootstrap, directory):
        self.progress, self.protocol = Progress(name), protocol
        self._library, self._bootstrap, self._directory = library, bootstrap, directory
        self._before = self._last = {"copied": 0, "errors": {}, "instances": 0}
        self._open()

    def _open(self):
        self.client = start_client(self._library, self._bootstrap, self._directory)
        options = {"group": f"copy-{self.protocol}", "protocol": self.protocol, "source": SOURCE}
        options |= {"sink": sink_of(self.protocol), "transactional_id": self.progress.name}
        self.client.call("copier_open", id=self.progress.name, **options)

    def look(self):
        """Read the state of the process."""
        self._last = self.client.call("copier_state", id=self.progress.name, timeout_s=30)
        self.progress.step = self._last["step"]
        self.progress.count = self.copied

    @property
    def copied(self):
        return self._before["copied"] + self._last["copied"]

    @property
    def errors(self):
        return Counter(self._before["errors"]) + Counter(self._last["errors"])

    @property
    def instances(self):
        return self._before["instances"] + self._last["instances"]

    def replace(self):
        self.client.kill()
        self._before = {"copied": self.copied, "errors": self.errors, "instances": self.instances}
        self._last = {"copied": 0, "errors": {}, "instances": 0}
        self.progress.hung += 1
        self.progress.restart()
        self._open()

    def close(self):
        try:
            self.client.call("copier_close", id=self.progress.name, timeout_s=60)
        finally:
            self.client.kill()


class Load:
    """A load of one client library, while brokers change."""

    def __init__(self, library, directory, seed=1):
        self.library, self.directory, self.seed, self.problems = library, directory, seed, []
        self.process = BrokerProcess(directory, PROPERTIES, brokers=3)
        self.process.start()
        self.broker = Broker(process=self.process)
        self.sinks = {protocol: sink_of(protocol) for protocol in GROUPS[library]}
        for topic in (SOURCE, *self.sinks.values()):
            self.broker.create_topic(topic, PARTITIONS)
        names = [f"producer-{i}" for i in range(PRODUCERS)]
        self.producers = [Producer(name, library, self._bootstrap, self._folder(name), seed) for name in names]
        self.copiers = [
            Copier(name := f"copier-{protocol}-{i}", library, protocol, self._bootstrap, self._folder(name))
            for protocol, members in GROUPS[library].items()
            for i in range(members)
        ]
        self.version = self.producers[0].client.version
        names += [copier.progress.name for copier in self.copiers]
        groups = [f"copy-{protocol}" for protocol in self.sinks]
        topics = [SOURCE, *self.sinks.values()]
        self.changes = Changes(self.broker.admin(), names, groups, topics, PARTITIONS, seed)
        self.without_traffic = 0

    @property
    def _bootstrap(self):
        return self.process.bootstrap

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """End all processes that still run."""
        for worker in self.producers + self.copiers:
            if worker.client.is_alive:
                worker.client.kill()
        self.process.kill()

    def _folder(self, name):
        folder = self.directory / name
        folder.mkdir()
        return folder

    def run(self, changes, per_second, most_s=float("inf")):
        """Make changes, for at most this time; then let all copiers finish, and stop the broker."""
        for producer in self.producers:
            producer.start()
        self._wait_for(lambda: all(each.progress.count for each in self.producers + self.copiers), "a first record")
        dice, looked, seen, deadline = random.Random(self.seed), 0.0, 0, time.monotonic() + most_s
        while (made := sum(self.changes.made.values())) < changes and time.monotonic() < deadline:
            self.changes.make()
            if sum(self.changes.made.values()) == made:
                continue  # it was not possible
            done = sum(producer.progress.count for producer in self.producers)
            self.without_traffic += done == seen
            seen = done
            if time.monotonic() - looked > LOOK_S / 2:
                looked = time.monotonic()
                self.look()
            time.sleep(min(dice.expovariate(per_second), 1))
        self.changes.count_hits()
        self.changes.end()
        self._finish()

    def look(self, copiers=None):
        """Read the progress of all workers, and replace copiers that hang, of all or of these."""
        for copier in self.copiers if copiers is None else copiers:
            try:
                copier.look()
            except (AssertionError, OSError, ValueError) as error:
                copier.progress.errors[f"{copier.progress.step}: the process ended"] += 1
                print(error, file=sys.stderr)
                copier.replace()
            copier.progress.look()
            if copier.progress.is_hung:
                self._write_requests(copier.progress)
                copier.replace()
        for producer in self.producers:
            producer.progress.look()
            if producer.is_alive() and producer.progress.is_hung:
                self._write_requests(producer.progress)
                producer.kill()

    def _late_copiers(self, protocol):
        """Return the copiers of a group with a lag that can be the reason: those that do not poll, else all."""
        members = [copier for copier in self.copiers if copier.protocol == protocol]
        return [copier for copier in members if copier.progress.step != "poll"] or members

    def _write_requests(self, progress):
        """Write the kept requests of a worker to a file: those of each connection that names it. This takes a while."""
        self.changes.undo_all()
        written = len(list(self.directory.glob("*.requests")))
        if written == MOST_FILES:
            return
        file = self.directory / f"{progress.name}-{written}.requests"
        admin, entries, since = self.broker.admin(), [], 0
        last = admin.get("/v1/journal?limit=1")["last"]
        while since < last:
            entries += map(entry_from_json, admin.get(f"/v1/journal?since={since}")["passages"])
            since = entries[-1].number
        peers = {entry.peer for entry in entries if progress.name.encode() in entry.request}
        kept = [entry for entry in entries if entry.peer in peers]
        file.write_text("".join(f"{json.dumps(event, default=str)}\n" for event in events(kept)))
        print(f"{progress.name} makes no progress at {progress.step}: {file}", file=sys.stderr, flush=True)

    def _finish(self):
        for producer in self.producers:
            producer.stopping.set()
        self._wait_for(lambda: not any(each.is_alive() for each in self.producers), "the producers end")
        for producer in self.producers:
            producer.client.kill()
        for protocol in self.sinks:
            self._wait_for(
                lambda group=f"copy-{protocol}": self._is_done(group), f"copy-{protocol} has no lag", protocol
            )
        for copier in self.copiers:
            try:
                copier.look()
                copier.close()
            except (AssertionError, DriverError) as error:
                copier.progress.errors[f"close: {getattr(error, 'kind', 'hangs')}"] += 1
        self._wait_for(self._has_no_transactions, "no transaction is open", copiers=())
        self.broker.close()
        self.process.stop()

    def _is_done(self, group):
        """Return whether a group has copied all. Its offsets may still be those of an open transaction."""
        with suppress(KafkaError):
            lag = self.broker.lag(group)
            return len(lag) == PARTITIONS and not any(lag.values())
        return False

    def _has_no_transactions(self):
        """Return whether all transactions have ended: a producer that was killed leaves one until its timeout."""
        with suppress(KafkaError):
            return not any(each.is_open for each in self.broker.transactions())
        return False

    def _wait_for(self, is_true, what, protocol=None, copiers=None):
        deadline = time.monotonic() + END_S
        while not is_true():
            if time.monotonic() > deadline:
                self.problems.append(f"not within {END_S} s: {what}")
                return False
            self.look(copiers if protocol is None else self._late_copiers(protocol))
            time.sleep(0.5)
        return True

    # ---- the check

    def check(self):
        """Compare the records in the files with what the producers know, and let the audit read them."""
        found = Counter(self._read(SOURCE))
        committed = {value for producer in self.producers for value in producer.committed}
        unknown = {value for producer in self.producers for value in producer.unknown}
        self._compare(SOURCE, found, committed, committed | unknown)
        for sink in self.sinks.values():
            self._compare(sink, Counter(self._read(sink)), found.keys(), found.keys())
        self.records = sum(found.values())
        copies = [part for sink in self.sinks.values() for part in ("--copies", f"{SOURCE}={sink},key")]
        command = [sys.executable, "-m", "ottla.cli.main", "audit", *copies, str(self.process.data_dir)]
        audit = subprocess.run(command, capture_output=True, text=True, check=False)
        if audit.returncode != 0:
            self.problems.append(f"ottla audit: {audit.stdout[-2000:]}{audit.stderr[-2000:]}")
        return self.problems

    def _read(self, topic):
        for number in range(PARTITIONS):
            for record in scan_partition(self.process.data_dir / f"{topic}-{number}").records("read_committed"):
                yield record.value.decode()

    def _compare(self, topic, found, least, most):
        for what, values in (
            ("missing", sorted(least - found.keys())),
            ("not committed", sorted(found.keys() - most)),
            ("more than once", sorted(value for value, count in found.items() if count > 1)),
        ):
            if values:
                self.problems.append(f"{topic}: {len(values)} records {what}: {values[:10]}")

    def describe(self):
        """Return the lines of a report."""
        changes, (met_changes, hits) = sum(self.changes.made.values()), self.changes.met
        yield f"{self.library} {self.version}: {changes} changes {dict(self.changes.made)}"
        yield f"  met by a client: {met_changes}, {hits} times; no transaction until the next: {self.without_traffic}"
        yield f"  {self.records} records committed in {SOURCE}, each of them copied by {', '.join(self.sinks)}"
        errors, instances, hung = Counter(), Counter(), Counter()
        for each in self.producers:
            errors.update({f"producer {key}": count for key, count in each.progress.errors.items()})
            instances["producer"] += each.progress.instances
            hung["producer"] += each.progress.hung
        for each in self.copiers:
            errors.update(
                {f"{each.protocol} copier {key}": n for key, n in (each.errors + each.progress.errors).items()}
            )
            instances[each.protocol] += each.instances
            hung[each.protocol] += each.progress.hung
        yield f"  instances: {dict(instances)}; replaced because they made no progress: {dict(hung)}"
        yield from (f"  {count:6} {error}" for error, count in sorted(errors.items()))
        yield from (f"  PROBLEM {problem}" for problem in self.problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="+", choices=GROUPS)
    parser.add_argument("--changes", type=int, default=4000)
    parser.add_argument("--per-second", type=float, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, required=True)
    options = parser.parse_args()
    failed = 0
    for library in options.clients:
        if reason := lacks(library):
            print(f"{library}: {reason}")
            continue
        with Load(library, options.directory / library, options.seed) as load:
            load.run(options.changes, options.per_second, options.seconds)
            failed += bool(load.check())
            print("\n".join(load.describe()), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
