"""Producer ids of brokers that share a real ZooKeeper: kills, lost answers, outages, a wiped or restored node."""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient
from kazoo.security import READ_ACL_UNSAFE
from targets import Ottla
from zookeeper_server import CuttingProxy, ZooKeeper, lacks

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testkit.in_memory.wire import message
from ottla.testkit.kit.wire import connect
from tests.timeout import EVENT_TIMEOUT_S

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks() or "never")

KILLS = int(os.environ.get("OTTLA_KILLS") or "5")
KILLED_AT_ONCE = 2
KILLS_PER_KILL_OF_ZOOKEEPER = 5
CUTS = 0.05
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    started = ZooKeeper(tmp_path_factory.mktemp("zookeeper")).start()
    yield started
    started.stop()


@pytest.fixture
def proxy(zookeeper):
    made = CuttingProxy(zookeeper.port)
    yield made
    made.close()


@pytest.fixture
def brokers(tmp_path, proxy, request):
    """Return a function that starts a broker with this name, id and root of the node."""
    started = []

    def start(name, root, node_id=1, kind=Ottla):
        of_ids = {"producer.id.manager": "zookeeper", "zookeeper.connect": f"{proxy.address}/{root}"}
        started.append(kind(tmp_path / name, of_ids | {"node.id": str(node_id)}).start())
        return started[-1]

    yield start
    for each in started:
        each.stop()


def init(broker):
    """Return the error and the producer id of an idempotent producer."""
    with connect(broker.bootstrap, "test") as connection:
        asked = message(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1_000)
        answer = connection.send(asked, 4)
    return ErrorCode(answer.error_code), answer.producer_id


def init_when_ready(broker):
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while True:
        error, producer_id = init(broker)
        if not error:
            return producer_id
        assert error is LOADING and time.monotonic() < deadline
        time.sleep(0.05)


def use_up(broker):
    """Take all ids that the broker has."""
    ids = []
    with connect(broker.bootstrap, "test") as connection:
        asked = message(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1_000)
        while len(ids) < 3_000 and not (answer := connection.send(asked, 4)).error_code:
            ids.append(answer.producer_id)
    assert ErrorCode(answer.error_code) is LOADING
    return ids


def ottla_ids(*words):
    command = [sys.executable, "-m", "ottla.cli.main", "ids", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)


class OttlaWithoutVersion(Ottla):
    """Ours with an intentional bug: a change of the node does not compare its version."""

    name = "Ottla without the version"

    def command(self):
        python, dash_m, _, *arguments = super().command()
        return [python, dash_m, "tests.conformance.zookeeper_without_version", *arguments]


def ids_under_kills(zookeeper, proxy, start, kills, same_id, kind=Ottla):
    """Yield the ids that three brokers of a root give in each round: two are killed, perhaps ZooKeeper too, and answers
    are cut. Those that start again take their next blocks at the same time. Brokers of one id write the same bytes."""
    root = f"{kind.__name__}-{same_id}"
    three = [start(f"broker-{place}", root, 1 if same_id else place, kind) for place in (1, 2, 3)]
    rounds = range(kills // KILLED_AT_ONCE)
    rng = random.Random(1)
    at_zookeeper = set(rng.sample(rounds, kills // KILLS_PER_KILL_OF_ZOOKEEPER))
    yield [init_when_ready(broker) for broker in three]
    proxy.cuts = CUTS
    with ThreadPoolExecutor(len(three)) as pool:
        for number in rounds:
            killed = rng.sample(three, KILLED_AT_ONCE)
            for broker in killed:
                broker.kill()
            if number in at_zookeeper:
                zookeeper.kill()
                zookeeper.start()
            list(pool.map(Ottla.start, killed))
            proxy.gather(len(killed))
            given = pool.map(lambda broker: [init_when_ready(broker) for _ in range(3)], three)
            yield [each for ids in given for each in ids]


@pytest.mark.parametrize("same_id", [False, True])
def test_no_id_is_given_twice(zookeeper, proxy, brokers, same_id):
    ids = [each for given in ids_under_kills(zookeeper, proxy, brokers, KILLS, same_id) for each in given]
    assert len(ids) == 3 + 9 * (KILLS // KILLED_AT_ONCE) == len(set(ids))
    shown = ottla_ids(f"{zookeeper.address}/Ottla-{same_id}")
    last = max(ids) // 1000 * 1000 + 999
    assert shown.returncode == 0 and int(shown.stdout.split("below ")[1].split()[0]) > last


def test_without_the_version_ids_are_given_twice(zookeeper, proxy, brokers):
    """The first round that repeats an id is the last one. A round may not: a lost block is not used."""
    rounds = ids_under_kills(zookeeper, proxy, brokers, 10 * KILLED_AT_ONCE, False, OttlaWithoutVersion)
    assert any(len(given) > len(set(given)) for given in rounds)


def test_an_outage_stops_new_ids_alone_and_ends_by_itself(zookeeper, proxy, brokers):
    broker = brokers("broker", "outage")
    with connect(broker.bootstrap, "test") as connection:
        found = message(ApiKey.FIND_COORDINATOR, 1, key="known", key_type=1)
        known = message(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="known", transaction_timeout_ms=1_000)
        connection.send(found, 1)
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while (first := connection.send(known, 4)).error_code:
            assert time.monotonic() < deadline
        zookeeper.kill()
        given = use_up(broker)
        again = connection.send(known, 4)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, first.producer_id, 1)
        zookeeper.start()
        following = init_when_ready(broker)
    assert following > max(given)
    assert "gives producer ids again" in broker.log_tail()


def wait_for_refusal(broker):
    """Use up the ids of a broker that knows more ids than the node. Return them, and the id that its log asks for."""
    given = use_up(broker)
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not (refused := re.search(r"it was wiped or restored.* ottla ids raise \S+ (\d+)", broker.log_tail())):
        assert init(broker)[0] is LOADING and time.monotonic() < deadline
    return given, int(refused[1])


def test_a_wiped_zookeeper_is_refused_until_it_is_raised(zookeeper, brokers):
    broker = brokers("broker", "wiped/ottla")
    given = [init_when_ready(broker)]
    broker.kill()
    broker.start()
    given.append(init_when_ready(broker))
    zookeeper.stop()
    shutil.rmtree(zookeeper.data_dir)
    zookeeper.start()
    other = brokers("other", "wiped/ottla", 2)
    assert init_when_ready(other) == given[0] == 0 and given[1] >= 1_000  # it knows nothing of the first broker
    last, known = wait_for_refusal(broker)
    assert known == max(last) + 1
    raised = ottla_ids("raise", f"{zookeeper.address}/wiped/ottla", str(known))
    assert (raised.returncode, raised.stdout) == (0, f"The next broker gets producer ids from {known} on.\n")
    assert init_when_ready(broker) == known
    lower = ottla_ids("raise", f"{zookeeper.address}/wiped/ottla", "5")
    assert lower.returncode == 1 and lower.stderr.count("\n") == 1 and "never lowered" in lower.stderr


def test_a_zookeeper_restored_from_a_backup_is_refused_until_it_is_raised(tmp_path, zookeeper, brokers):
    """Both brokers have taken a block since the backup, so each metadata log knows more ids than the node."""
    two = [brokers(f"broker-{place}", "restored", place) for place in (1, 2)]
    given = [init_when_ready(broker) for broker in two]
    backup = shutil.copytree(zookeeper.data_dir, tmp_path / "backup")
    for broker in two:
        broker.kill()
        broker.start()
        given.append(init_when_ready(broker))
    zookeeper.stop()
    shutil.rmtree(zookeeper.data_dir)
    backup.rename(zookeeper.data_dir)
    zookeeper.start()
    refusals = [wait_for_refusal(broker) for broker in two]
    known = max(asked for _, asked in refusals)
    assert ottla_ids("raise", f"{zookeeper.address}/restored", str(known)).returncode == 0
    following = [init_when_ready(broker) for broker in two]
    assert min(following) == known
    given += [*refusals[0][0], *refusals[1][0], *following]
    assert len(given) == len(set(given))


def test_a_node_that_may_not_be_written_is_named_with_the_remedy(zookeeper):
    client = KazooClient(zookeeper.address)
    client.start()
    client.ensure_path("/ours")
    client.create("/ours/latest_producer_id_block", acl=READ_ACL_UNSAFE)
    client.stop()
    raised = ottla_ids("raise", f"{zookeeper.address}/ours", "1000")
    assert raised.returncode == 2 and raised.stderr.count("\n") == 1
    assert f"ZooKeeper node /ours/latest_producer_id_block of {zookeeper.address}: refused: let anyone" in raised.stderr


def test_the_command_refuses_a_missing_node_and_bad_arguments(zookeeper):
    missing = ottla_ids(f"{zookeeper.address}/otla")
    assert missing.returncode == 1 and missing.stdout == ""
    assert "there is no block at /otla/latest_producer_id_block" in missing.stderr and "zookeeper" in missing.stderr
    assert ottla_ids("zk:port/ottla").returncode == ottla_ids("raise", zookeeper.address, "x").returncode == 2
