"""Values of configs in logs: possible passwords are hidden."""

import pytest

from ottla.broker.config.describe import loggable_value


@pytest.mark.parametrize("name", ["retention.ms", "log.retention.ms", "consumer.session.timeout.ms"])
def test_the_value_of_a_known_harmless_config_is_logged(name):
    assert loggable_value(name, "60000") == "60000"
    assert loggable_value(name, None) is None


@pytest.mark.parametrize(
    "name", ["ssl.key.password", "listener.name.internal.ssl.keystore.password", "plugin.thing", ""]
)
def test_passwords_and_values_of_unknown_configs_are_hidden(name):
    assert loggable_value(name, "hunter2") == "[hidden]"
    assert loggable_value(name, None) is None
