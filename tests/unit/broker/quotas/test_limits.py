"""The first quota that is set for a client applies, in Kafka's order."""

from itertools import combinations

import pytest

from ottla.broker.quotas.limits import Limits

# The eight levels, in the order in which Kafka tries them, with the clients that share a sensor.
LEVELS = [
    ({"user": "ada", "client-id": "app"}, ("ada", "app")),
    ({"user": "ada", "client-id": None}, ("ada", "app")),
    ({"user": "ada"}, ("ada", "")),
    ({"user": None, "client-id": "app"}, ("ada", "app")),
    ({"user": None, "client-id": None}, ("ada", "app")),
    ({"user": None}, ("ada", "")),
    ({"client-id": "app"}, ("", "app")),
    ({"client-id": None}, ("", "app")),
]


@pytest.mark.parametrize("count", range(1, 9))
def test_the_first_level_that_is_set_counts(count):
    for chosen in combinations(range(8), count):
        limits = Limits()
        for level in reversed(chosen):
            limits.set(LEVELS[level][0], level + 1.0)
        owner = limits.owner("ada", "app")
        assert owner == LEVELS[chosen[0]][1]
        assert limits.of(owner) == chosen[0] + 1.0


def test_others_names_do_not_count():
    limits = Limits()
    limits.set({"user": "bob"}, 1.0)
    limits.set({"client-id": "other"}, 2.0)
    limits.set({"user": "ada", "client-id": "other"}, 3.0)
    assert limits.of(limits.owner("ada", "app")) is None


def test_a_removed_quota_no_longer_applies():
    limits = Limits()
    limits.set({"user": "ada", "client-id": "app"}, 1.0)
    limits.set({"user": None}, 2.0)
    limits.set({"user": "ada", "client-id": "app"}, None)
    assert limits.of(limits.owner("ada", "app")) == 2.0
    limits.set({"user": None}, None)
    assert not limits
    assert limits.of(limits.owner("ada", "app")) is None


def test_users_of_a_default_are_measured_apart():
    limits = Limits()
    limits.set({"user": None}, 1.0)
    assert limits.owner("ada", "app") == limits.owner("ada", "other") != limits.owner("bob", "app")


def test_a_client_without_an_id_has_the_quota_of_its_user():
    limits = Limits()
    limits.set({"client-id": None}, 1.0)
    assert limits.of(limits.owner("ada", "")) is None
    limits.set({"user": "ada"}, 2.0)
    limits.set({"user": "ada", "client-id": None}, 3.0)
    assert limits.of(limits.owner("ada", "")) == 2.0
