"""Sensors throttle by their own limit, follow its changes, and are removed when they are not used."""

from ottla.broker.quotas import managers
from ottla.broker.quotas.connection_rates import ConnectionRates
from ottla.broker.quotas.managers import EXPIRY_MS, ClientQuotaManager, ControllerMutationQuotaManager
from ottla.broker.quotas.rates import Window

WINDOW = Window(11, 1_000.0)


def _manager(**limits):
    manager = ClientQuotaManager(WINDOW)
    for client_id, limit in limits.items():
        manager.sensors.set({"client-id": None if client_id == "default" else client_id}, limit)
    return manager


def test_usage_without_a_quota_is_not_tracked():
    manager = _manager(app=1.0)
    assert manager.record("ada", "other", 1e9, 0.0) == 0
    assert manager.most_at_once("ada", "other") is None
    assert len(manager.sensors) == 0


def test_each_client_id_of_a_default_is_measured_apart():
    manager = _manager(default=1_000.0)
    assert manager.record("ada", "one", 20_000, 0.0) == 10_000
    assert manager.record("ada", "two", 10_000, 0.0) == 0
    assert manager.most_at_once("ada", "three") == 10_000


def test_another_limit_acts_on_what_was_taken():
    manager = _manager(app=1_000.0)
    manager.record("ada", "app", 10_000, 0.0)
    manager.sensors.set({"client-id": "app"}, 500.0)
    assert manager.record("ada", "app", 0, 0.0) == 10_000
    manager.sensors.set({"client-id": "app"}, None)
    assert manager.record("ada", "app", 0, 0.0) == 0


def test_a_sensor_is_forgotten_after_an_hour():
    manager = _manager(default=1_000.0)
    for number in range(10):
        manager.record("ada", str(number), 1, 0.0)
    manager.record("ada", "9", 1, EXPIRY_MS - 1)
    for number in range(10, 20):
        manager.record("ada", str(number), 1, EXPIRY_MS)
    assert len(manager.sensors) == 11


def test_client_ids_without_end_take_bounded_memory(monkeypatch):
    monkeypatch.setattr(managers, "MOST_SENSORS", 100)
    manager = _manager(default=1_000.0)
    for number in range(1_000):
        manager.record("ada", str(number), 1, number / 1_000)
        manager.record("ada", "busy", 25, number / 1_000)
    assert len(manager.sensors) == 100
    assert manager.record("ada", "busy", 0, 1.0) > 14_000


def _mutations(strict, *takes):
    manager, now = ControllerMutationQuotaManager(WINDOW), [0.0]
    manager.sensors.set({"user": "ada"}, 2.0)
    quota = manager.quota_of("ada", "app", lambda: now[0], strict=strict)
    return quota, now, [quota.takes(count) for count in takes]


def test_a_strict_quota_takes_much_at_once_and_then_nothing():
    quota, now, taken = _mutations(True, 30, 1)
    assert taken == [True, False]
    assert quota.throttle_ms == 4_000
    now[0] = 1_500.0
    assert quota.throttle_ms == 2_500
    now[0] = 4_000.0
    assert quota.takes(1)


def test_a_permissive_quota_takes_all_and_throttles():
    quota, _, taken = _mutations(False, 30, 1)
    assert taken == [True, True]
    assert quota.throttle_ms == 4_500


def test_quota_of_returns_none_for_a_user_without_mutation_quota():
    manager = ControllerMutationQuotaManager(WINDOW)
    assert manager.quota_of("ada", "app", lambda: 0.0, strict=True) is None


def test_addresses_have_the_rate_of_their_own_or_the_default():
    rates = ConnectionRates(WINDOW)
    assert all(rates.enter("10.0.0.1", 0.0) for _ in range(1_000))
    rates.set(None, 1.0)
    rates.set("10.0.0.2", 2.0)
    assert sum(rates.enter("10.0.0.1", 0.0) for _ in range(100)) == 10
    assert sum(rates.enter("10.0.0.2", 0.0) for _ in range(100)) == 20
    assert rates.throttled == 170
    assert rates.enter("10.0.0.1", 20_000.0)


def test_an_address_is_the_same_however_it_is_written():
    rates = ConnectionRates(WINDOW)
    rates.set("2001:DB8::0:1", 0.1)
    assert rates.enter("2001:db8::1", 0.0)
    assert not rates.enter("2001:db8::1", 0.0)
    rates.set("10.0.0.1", 0.1)
    assert rates.enter("::ffff:10.0.0.1", 0.0)
    assert not rates.enter("10.0.0.1", 0.0)


def test_addresses_are_forgotten(monkeypatch):
    monkeypatch.setattr(managers, "MOST_SENSORS", 100)
    rates = ConnectionRates(WINDOW)
    rates.set(None, 1.0)
    for number in range(105):
        rates.enter(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(rates) == 100
    rates.set(None, None)
    assert len(rates) == 0
