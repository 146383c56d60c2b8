"""Options of the pytest plugin that exclude each other or need each other."""

from types import SimpleNamespace

import pytest

from ottla.testkit.pytest_plugin import pytest_sessionstart

ADMIN = {"--ottla-bootstrap": "broker:9092", "--ottla-admin": "broker:9644"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"--ottla-admin": "broker:9644"}, "--ottla-admin needs --ottla-bootstrap HOST:PORT, a listener of the same"),
        ({"--ottla-admin-token": "secret"}, "--ottla-admin-token needs --ottla-admin URL"),
        (ADMIN | {"dist": "load"}, "--ottla-admin is one clock and one plan of faults for all tests: run without -n"),
    ],
)
def test_a_wrong_combination_of_options_is_reported_before_the_first_test(given, reason):
    config = SimpleNamespace(getoption=lambda name, default=None: given.get(name, default))
    with pytest.raises(pytest.UsageError, match=reason):
        pytest_sessionstart(SimpleNamespace(config=config))
