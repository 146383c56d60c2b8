"""APIs and features of a release of Kafka."""

import pytest

from ottla.broker.api.table import TABLE
from ottla.protocol.api_keys import ApiKey
from ottla.testkit.releases import has_transaction_version, latest_versions


def test_a_release_has_what_those_before_it_brought():
    old, new = latest_versions("2.8"), latest_versions("3.9.1")
    assert (old[ApiKey.END_TXN], new[ApiKey.END_TXN], latest_versions("4.0")[ApiKey.END_TXN]) == (3, 4, 5)
    assert old[ApiKey.CREATE_TOPICS] == new[ApiKey.CREATE_TOPICS] == 7
    assert ApiKey.LIST_TRANSACTIONS not in old
    assert all(old[key] <= new[key] for key in old)


def test_the_newest_has_every_api_that_is_served():
    newest = latest_versions("4.4")
    assert set(TABLE) <= set(newest)
    assert all(api.max_version <= newest[key] for key, api in TABLE.items())


def test_transaction_version_2_starts_with_release_4_0():
    assert [has_transaction_version(release) for release in ("2.8.2", "3.9", "4.0", "4.2")] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("release", ["", "5.0", "2", "two"])
def test_a_release_that_is_not_known_is_named(release):
    with pytest.raises(ValueError, match=r"is an unknown release; known are 0\.11\.0, 1\.0"):
        latest_versions(release)
