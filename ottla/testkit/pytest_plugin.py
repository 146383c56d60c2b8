"""Fixtures for tests with their own broker, without conftest, container or Java. free

They are available when ottla is installed. Until one is used, only pytest and the standard library are loaded.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from ottla.testkit.kit.broker import Broker
    from ottla.testkit.kit.clients import Clients
    from ottla.testkit.kit.clock import BrokerClock
    from ottla.testkit.kit.faults import Faults, PlannedFault
    from ottla.testkit.kit.ledger import LedgerEntry
    from ottla.testkit.kit.pool import BrokerPool
    from ottla.testkit.kit.process import NeedsOwnBroker
    from ottla.testkit.kit.proxied import ProxiedBroker
    from ottla.testkit.kit.remote import RemoteBroker

_MARKER: Final = (
    "ottla(transaction_version=2, properties={}, as_version=None, brokers=1): run the test on a broker with these "
    "settings; properties are options of server.properties, as_version is an older Kafka to imitate, brokers the "
    "number of brokers that the process presents itself as"
)
_KEYWORDS: Final = ("transaction_version", "properties", "as_version", "brokers")
_TAIL_LINES: Final = 40
_REMOTE: "Final[pytest.StashKey[RemoteBroker]]" = pytest.StashKey()
"""The broker of --ottla-admin."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ottla", "a Kafka broker for tests")
    group.addoption(
        "--ottla-bootstrap",
        metavar="HOST:PORT",
        help="Test on this broker, which may be any Kafka, instead of starting one. Without --ottla-admin, tests of "
        "faults and of the broker's clock are skipped.",
    )
    group.addoption(
        "--ottla-admin",
        metavar="URL",
        help="The admin port of the broker of --ottla-bootstrap, such as http://127.0.0.1:9644: an Ottla that was "
        "started with --test-control. Tests control its clock, faults and settings.",
    )
    group.addoption("--ottla-admin-token", metavar="TOKEN", help="The token of the port of --ottla-admin.")
    group.addoption(
        "--ottla-port",
        type=int,
        default=0,
        metavar="PORT",
        help="The port of the shared broker, for code with a fixed address; not with pytest-xdist.",
    )
    group.addoption(
        "--ottla-keep",
        action="store_true",
        help="Keep the data directories of brokers, also if all tests pass.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    # kafka-python reads its schemas in this way, hundreds of times.
    config.addinivalue_line("filterwarnings", "ignore:(open|read)_text is deprecated:DeprecationWarning")
    if not any(hasattr(plugin, "kafka_broker") for plugin in config.pluginmanager.get_plugins()):
        from ottla.testkit import pytest_alias

        config.pluginmanager.register(pytest_alias, pytest_alias.__name__)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Connect to the broker of --ottla-admin. Report an unusable one before the first test."""
    option = session.config.getoption
    bootstrap, url, token = option("--ottla-bootstrap"), option("--ottla-admin"), option("--ottla-admin-token")
    if url is None:
        if token is not None:
            raise pytest.UsageError("--ottla-admin-token needs --ottla-admin URL")
        return
    if not bootstrap:
        raise pytest.UsageError("--ottla-admin needs --ottla-bootstrap HOST:PORT, a listener of the same broker")
    if option("dist", "no") != "no" or hasattr(session.config, "workerinput"):
        raise pytest.UsageError("--ottla-admin is one clock and one plan of faults for all tests: run without -n")
    if not option("collectonly"):
        from ottla.testkit.kit.remote import RemoteProblem, connect_remote

        try:
            session.config.stash[_REMOTE] = connect_remote(bootstrap, url, token)
        except RemoteProblem as problem:
            raise pytest.UsageError(str(problem)) from None


@contextmanager
def _skipping(item: pytest.Item) -> Iterator[None]:
    """Skip the test if it needs a broker that the kit starts, but runs on another one."""
    try:
        yield
    except RuntimeError as error:
        broker: Broker | None = getattr(item, "_ottla_broker", None)
        if broker is None or broker.process is not None:
            raise
        from ottla.testkit.kit.process import NeedsOwnBroker

        if not isinstance(error, NeedsOwnBroker):
            raise
        item._ottla_skipped = True  # type: ignore[attr-defined]
        pytest.skip(_skip_reason(error))


def _skip_reason(error: "NeedsOwnBroker") -> str:
    from ottla.testkit.kit.process import NeedsAdminPort

    other = ", or name the admin port of an Ottla with --ottla-admin" if isinstance(error, NeedsAdminPort) else ""
    return f"{error}: run this test without --ottla-bootstrap{other}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    with _skipping(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Any:
    """Fail a test whose mark is wrong, whether it uses a broker or not."""
    marker = item.get_closest_marker("ottla")
    if wrong := marker and _wrong_in(marker):
        exist = f"its keywords are {', '.join(_KEYWORDS)}"
        pytest.fail(f"@pytest.mark.ottla {wrong}; {exist}: @pytest.mark.{_MARKER}", pytrace=False)
    with _skipping(item):
        return (yield)


def _wrong_in(marker: pytest.Mark) -> str:
    """Return the error of a mark, or "" if it is valid."""
    from ottla.broker import MOST_BROKERS

    if marker.args:
        return f"takes keywords only, not {', '.join(map(repr, marker.args))}"
    if unknown := [name for name in marker.kwargs if name not in _KEYWORDS]:
        return f"has no keyword {', '.join(unknown)}"
    if not isinstance(properties := marker.kwargs.get("properties", {}), Mapping):
        return f"takes properties as a dict, not {properties!r}"
    brokers = marker.kwargs.get("brokers", 1)
    if isinstance(brokers, bool) or not isinstance(brokers, int) or not 1 <= brokers <= MOST_BROKERS:
        return f"takes brokers from 1 to {MOST_BROKERS}, not {brokers!r}"
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Any:
    """Add the broker's log and open transactions to the report of a failed test."""
    report = yield
    broker = getattr(item, "_ottla_broker", None)
    if broker is not None and report.failed and call.when == "call":
        item._ottla_failed = True  # type: ignore[attr-defined]
        with suppress(Exception):  # the broker may be what has failed
            report.sections.append(("ottla broker", broker.describe(_TAIL_LINES)))
    return report


@pytest.fixture(scope="session")
def make_ottla(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[BrokerPool]":
    """Brokers with other settings: `make_ottla(properties={...})`. A session starts one for each set of settings."""
    from ottla.testkit.kit.pool import BrokerPool

    option = request.config.getoption
    if option("--ottla-port") and hasattr(request.config, "workerinput"):
        raise pytest.UsageError(
            "--ottla-port is one port, but each worker of pytest-xdist starts a broker: run without -n"
        )
    pool = BrokerPool(tmp_path_factory.mktemp("ottla"), keep=option("--ottla-keep"), port=option("--ottla-port"))
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def ottla_proc(make_ottla: "BrokerPool") -> "Broker":
    """The broker process that tests share."""
    return make_ottla()


@pytest.fixture(scope="session")
def ottla_noproc(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """The broker of `--ottla-bootstrap`."""
    bootstrap = request.config.getoption("--ottla-bootstrap")
    if not bootstrap:
        pytest.skip("no broker is given: set --ottla-bootstrap HOST:PORT")
    from ottla.testkit.kit.broker import Broker

    broker = request.config.stash.get(_REMOTE, None) or Broker(bootstrap)
    yield broker
    broker.close()


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """The broker of this test. Its topics and groups are deleted after the test.

    A broker that the kit starts has no others. Another one keeps those that were there before.
    """
    broker = _broker_of(request)
    broker.begin()
    request.node._ottla_broker = broker
    yield broker
    if getattr(request.node, "_ottla_failed", False) and broker.process is not None:
        _keep(broker)
    never_fired = broker.end()
    if not (getattr(request.node, "_ottla_failed", False) or getattr(request.node, "_ottla_skipped", False)):
        _fail_if_never_fired(never_fired)


def _fail_if_never_fired(never_fired: "Sequence[PlannedFault]") -> None:
    faults, changes = ([each for each in never_fired if each.is_change is is_change] for is_change in (False, True))
    lines = []
    if faults:
        lines.append(f"planned faults never fired, so this test has not tested them:{_list(faults)}")
    if changes:
        lines.append(f"no client met these changes to the brokers, so this test has not tested them:{_list(changes)}")
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def _list(faults: "Sequence[PlannedFault]") -> str:
    return "".join(f"\n  {fault!r}" for fault in faults)


def _broker_of(request: pytest.FixtureRequest) -> "Broker":
    marker = request.node.get_closest_marker("ottla")
    if request.config.getoption("--ottla-bootstrap"):
        return _with_settings(request.getfixturevalue("ottla_noproc"), marker)
    if marker is None:
        return request.getfixturevalue("ottla_proc")  # type: ignore[no-any-return]
    pool: BrokerPool = request.getfixturevalue("make_ottla")
    return pool(**marker.kwargs)


def _with_settings(broker: "Broker", marker: pytest.Mark | None) -> "Broker":
    """Return the broker of --ottla-bootstrap with the settings of a mark, or skip the test."""
    from ottla.testkit.kit.process import NeedsAdminPort, NeedsOwnBroker
    from ottla.testkit.kit.remote import RemoteBroker

    if marker is not None:
        try:
            if not isinstance(broker, RemoteBroker):
                raise NeedsAdminPort("the broker of --ottla-bootstrap has its own settings")
            broker.apply(**marker.kwargs)
        except NeedsOwnBroker as error:
            pytest.skip(_skip_reason(error))
    return broker


def _keep(broker: "Broker") -> None:
    """Copy the data directory that the failed test has left; the report names the copy."""
    with suppress(OSError):
        shutil.copytree(broker.data_dir, broker.kept_dir(), dirs_exist_ok=True)


@pytest.fixture
def ottla_clock(ottla_broker: "Broker") -> "BrokerClock":
    """The broker's time: `advance(days=7)`, `freeze()`, `resume()`."""
    _require_control(ottla_broker)
    return ottla_broker.clock


@pytest.fixture
def ottla_faults(ottla_broker: "Broker") -> "Faults":
    """Faults of this test: `on("EndTxn", nth=2).reply("COORDINATOR_NOT_AVAILABLE")`.

    A fault that never fires fails the test.
    """
    _require_control(ottla_broker)
    return ottla_broker.faults


@pytest.fixture
def ottla_proxy(ottla_broker: "Broker") -> "Iterator[ProxiedBroker]":
    """A proxy to the broker of this test, which may be any Kafka: `ottla_proxy.bootstrap` for clients,
    `ottla_proxy.faults` of requests and replies. A fault that never fires fails the test."""
    from ottla.testkit.kit.proxied import ProxiedBroker

    with ProxiedBroker(ottla_broker.bootstrap) as proxy:
        yield proxy
        never_fired = proxy.faults.clear()
    _fail_if_never_fired(never_fired)


@pytest.fixture
def ottla_ledger(ottla_broker: "Broker") -> "Callable[[], list[LedgerEntry]]":
    """A function that returns every transactional request so far, with its outcome."""
    _require_control(ottla_broker)
    return ottla_broker.ledger


def _require_control(broker: "Broker") -> None:
    from ottla.testkit.kit.process import NeedsAdminPort

    if not broker.is_steered:
        pytest.skip(_skip_reason(NeedsAdminPort("the test controls the broker")))


@pytest.fixture
def kafka_bootstrap_servers(ottla_broker: "Broker") -> str:
    """The value for the `bootstrap.servers` of clients."""
    return ottla_broker.bootstrap


@pytest.fixture
def kafka_topic_factory(ottla_broker: "Broker", request: pytest.FixtureRequest) -> Callable[..., str]:
    """Factory of topics: `kafka_topic_factory(partitions=3, configs={...})` returns the name of a new topic.

    The topic is deleted after the test. `replication_factor` is at most the number of brokers.
    """

    def make(
        name: str | None = None,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
    ) -> str:
        return ottla_broker.create_topic(name or _fresh("topic"), partitions, configs, replication_factor)

    return make


@pytest.fixture
def kafka_topic(kafka_topic_factory: Callable[..., str]) -> str:
    """The name of a new topic with one partition."""
    return kafka_topic_factory()


@pytest.fixture
def kafka_group_id(ottla_broker: "Broker") -> str:
    """A new group id."""
    from ottla.testkit.kit.leftovers import GROUP

    name = _fresh("group")
    ottla_broker.leftovers.note(GROUP, name)
    return name


@pytest.fixture
def _clients(ottla_broker: "Broker") -> "Iterator[Clients]":
    """The clients of this test, closed after it."""
    from ottla.testkit.kit.clients import Clients

    clients = Clients(ottla_broker)
    yield clients
    clients.close()


@pytest.fixture
def kafka_producer(_clients: "Clients") -> Callable[..., Any]:
    """Factory of producers of the installed client, with short timeouts: `kafka_producer(linger_ms=0)`."""
    return _clients.producer


@pytest.fixture
def kafka_txn_producer(_clients: "Clients") -> Callable[..., Any]:
    """Factory of initialised transactional producers: `kafka_txn_producer("tx-1")`, or without an argument."""
    return _clients.transactional_producer


@pytest.fixture
def kafka_consumer(_clients: "Clients") -> Callable[..., Any]:
    """Factory of read_committed consumers that begin at the start: `kafka_consumer(topic, group_id=...)`."""
    return _clients.consumer


@pytest.fixture
def kafka_group_member(_clients: "Clients") -> Callable[..., Any]:
    """Factory of members of groups of the consumer protocol: `kafka_group_member(topic, group_id=..., on_lost=...)`.

    The consumers are those of confluent-kafka. Other arguments are the library's configuration.
    """
    pytest.importorskip("confluent_kafka", reason="the consumer protocol of groups needs confluent-kafka: install it")
    return _clients.group_member


def _fresh(what: str) -> str:
    return f"{what}-{uuid4().hex[:12]}"
