"""The settings of SASL of one listener: its mechanisms, and the values of each. pure

Source: `SaslConfigs`, `BrokerSecurityConfigs`, `SaslChannelBuilder`, `JaasContext` of Kafka 4.3.1.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.broker.config.broker import Config
from ottla.broker.config.listener_options import JAAS, MODULES, listener_config
from ottla.broker.config.oauth import oauth_problem
from ottla.protocol.java.jaas import LoginModule, parse_jaas, parse_jaas_file

_PACKAGES: Final = "org.apache.kafka.common.security."
_ENTRY: Final = "KafkaServer"
_OAUTHBEARER: Final = "OAUTHBEARER"


class SaslSettings(NamedTuple):
    """Settings of a listener with SASL."""

    mechanisms: tuple[str, ...]
    """In the order of `sasl.enabled.mechanisms`."""
    modules: Mapping[str, LoginModule]
    """The JAAS entry of each mechanism."""
    configs: Mapping[str, Config]
    """The configuration with the values of each mechanism."""
    max_receive_bytes: int
    """The largest frame of a client that has not logged in."""


def sasl_settings(config: Config, listener_name: str) -> SaslSettings:
    """Return the settings in force for a listener. The ValueError names the missing or invalid option."""
    own = config.listener_options.get(listener_name, {})
    of_listener = listener_config(config, listener_name)
    mechanisms = tuple(of_listener.sasl_enabled_mechanisms.split(","))
    strange = [mechanism for mechanism in mechanisms if mechanism not in MODULES]
    prefix = f"listener.name.{listener_name.lower()}"
    if strange:
        raise ValueError(
            f"Listener {listener_name}: sasl.enabled.mechanisms: {', '.join(strange) or 'nothing'} is not supported. "
            f"Set {prefix}.sasl.enabled.mechanisms, or sasl.enabled.mechanisms for all listeners: {', '.join(MODULES)}"
        )
    modules = {}
    for mechanism in mechanisms:
        jaas = own.get(f"{mechanism.lower()}.{JAAS}")
        module = _of_file(config.jaas_file, listener_name, mechanism) if jaas is None else parse_jaas(jaas)
        if module is None and mechanism == "PLAIN":
            raise ValueError(
                f"Listener {listener_name}: PLAIN has no users. Set {prefix}.plain.{JAAS} to "
                f'{_PACKAGES}plain.PlainLoginModule required user_NAME="PASSWORD";'
            )
        modules[mechanism] = module or LoginModule(MODULES[mechanism], {})
    configs = {mechanism: listener_config(config, listener_name, mechanism) for mechanism in mechanisms}
    if _OAUTHBEARER in mechanisms:
        problem = oauth_problem(configs[_OAUTHBEARER], modules[_OAUTHBEARER].options)
        if problem:
            raise ValueError(f"Listener {listener_name}: {problem}")
    return SaslSettings(mechanisms, modules, configs, of_listener.sasl_server_max_receive_size)


def _of_file(text: str, listener_name: str, mechanism: str) -> LoginModule | None:
    """Return the JAAS entry of a mechanism in a file: that of the listener, or of all. Raises ValueError."""
    try:
        found = parse_jaas_file(text)
    except ValueError as error:
        raise ValueError(f"java.security.auth.login.config: the file must contain {error}") from None
    modules = found.get(f"{listener_name.lower()}.{_ENTRY}", found.get(_ENTRY, []))
    return next((module for module in modules if module.name == MODULES[mechanism]), None)
