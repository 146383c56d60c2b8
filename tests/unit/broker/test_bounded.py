"""The ledger is charged: every API, with requests as large as its schema allows, charges its work and yields."""

import pytest

from lab.furnish import Size, furnish
from lab.greedy import Fill, greedy
from lab.simulation.charged import MOST_EVENT_US
from ottla.broker.api.table import TABLE
from ottla.broker.turns import Turns
from ottla.protocol.acls import ResourceType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.internal_topics.metadata_records import BROKER_RESOURCE
from ottla.protocol.requests.frames import MAX_ENTRIES, MAX_SMALL_REQUEST_BYTES
from ottla.testkit.in_memory.schedule import START_MS
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

SIZE = Size(
    topics=300,
    partitions=1_500,
    groups=300,
    ids=300,
    offsets=300,
    metadata_bytes=4_000,
    logs=5,
    records=4_000,
    start_ms=START_MS,
)
# An eighth of what the broker takes.
ENTRIES, BYTES = 2_048, 128 * 1024
MOST_US = MOST_EVENT_US / 2
MOST_UNCHARGED_CALLS = 2_000
"""What a step of fixed size may do without a charge: less than one for each entry of a request."""


@pytest.fixture(scope="module")
def filled_broker():
    """Return a filled broker. A new one is made when the state of the old one has changed."""
    kept = []

    def fill_state():
        if kept and not kept[0].has_changed():
            return kept
        broker = MemoryBroker()
        kept[:] = [broker, furnish(broker.ask, broker.advance, SIZE)]
        broker.mark()
        return kept

    return fill_state


def asks(api, state, entries, size_bytes):
    """Yield a request for each array and each way to fill it, with every flag set."""
    for ask in greedy(api.key, api.max_version, api.max_version, state, entries, size_bytes):
        if ask.flags or ask.fill is Fill.ALL:
            yield ask


def find_slow(broker, api, state, entries=ENTRIES, size_bytes=BYTES):
    """Yield the requests with an event that takes too long, or makes too many uncharged calls."""
    for ask in asks(api, state, entries, size_bytes):
        weight = broker.weigh(ask.message(), ask.version)
        if weight.us > MOST_US or weight.uncharged_calls > MOST_UNCHARGED_CALLS:
            yield f"{api.title} {ask.version}, {ask.fill} {ask.array}: {weight}"


@pytest.mark.slow
@pytest.mark.parametrize("api", TABLE.values(), ids=lambda api: api.title)
def test_a_huge_request_is_charged_and_yields(api, filled_broker):
    broker, state = filled_broker()
    assert [*find_slow(broker, api, state)] == []
    assert broker.bugs == []


class Moody:
    """An authorizer that refuses about half of the topics and ids, so that a request has rows of both kinds."""

    def authorize(self, session, need, name):
        return need.resource_type in (ResourceType.GROUP, ResourceType.CLUSTER) or name[-1:] < "5"

    def authorize_by_resource_type(self, session, need):
        return True


@pytest.mark.slow
@pytest.mark.parametrize("api", [api for api in TABLE.values() if api.needs], ids=lambda api: api.title)
def test_a_huge_request_is_charged_and_yields_with_an_authorizer(api, filled_broker):
    broker, state = filled_broker()
    parts = broker.assembly.broker
    parts.authorizer = Moody()
    try:
        assert [*find_slow(broker, api, state)] == []
    finally:
        parts.authorizer = None
    assert broker.bugs == []


@pytest.mark.slow
@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH], ids=lambda key: key.title)
def test_no_step_grows_with_the_rows(key, filled_broker):
    """Messages with records have their own decoders and encoders; only the full size shows their cost."""
    broker, state = filled_broker()
    assert [*find_slow(broker, TABLE[key], state, MAX_ENTRIES, MAX_SMALL_REQUEST_BYTES)] == []
    assert broker.bugs == []


@pytest.mark.slow
def test_many_configs_of_the_broker_are_logged_and_described_in_shares():
    """The broker keeps unknown names: they may belong to a plugin."""
    broker = MemoryBroker()
    configs = [{"name": f"plugin.{number}", "config_operation": 0, "value": "1"} for number in range(8_000)]
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1"}
    altering = message(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource | {"configs": configs}], validate_only=False
    )
    describing = message(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource | {"configuration_keys": None}])
    for asked, version in ((altering, 1), (describing, 4)):
        weight = broker.weigh(asked, version)
        assert weight.us <= MOST_US and weight.uncharged_calls <= MOST_UNCHARGED_CALLS
    assert broker.bugs == []


@pytest.mark.slow
@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT], ids=lambda key: key.title)
def test_a_handler_that_never_yields_is_detected(filled_broker, monkeypatch, key):
    broker, state = filled_broker()
    monkeypatch.setattr(Turns, "must_yield", False)
    assert [*find_slow(broker, TABLE[key], state)]


@pytest.mark.parametrize("rests", [False, True])
def test_a_handler_that_forgets_the_charge_is_seen(filled_broker, rests):
    """Asking for a turn budget after each row does not help: without a charge the budget is never spent."""
    broker, state = filled_broker()
    api = TABLE[ApiKey.DELETE_GROUPS]

    async def forgetful(parts, request):
        for group_id in request.body.groups_names:
            for _ in range(20):
                group_id.encode()
            if rests:
                await parts.turns.yield_if_due()
        return await api.handle(parts, request)

    broker.serve_with(api.key, forgetful)
    assert any("uncharged_calls" in line for line in find_slow(broker, api, state))
