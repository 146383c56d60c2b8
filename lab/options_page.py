"""Renders docs/options.md from the definitions of the options: `python -m lab.options_page`. free"""

import sys

from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS
from ottla.broker.config.option import DYNAMIC, INT32_MAX, INT64_MAX, LISTENER, MECHANISM, Kind, Option, value_text

_HEAD = """# All options

`make docs` makes this page from `ottla/broker/config`. Names, defaults and ranges are Kafka's, unless the meaning says
that the option is Ottla's own. [Run it](run.md#options) says where values come from.

A *dynamic* option can change while the broker runs, by AlterConfigs (`kafka-configs.sh`). An option *per listener* can
also be set for one listener (`listener.name.NAME.OPTION`); if it is dynamic too, it changes only for one listener. An
option *per mechanism* can be set for one SASL mechanism of a listener (`listener.name.NAME.MECHANISM.OPTION`).

## Options of the broker

| option | default | values | meaning |
|---|---|---|---|
"""

_TOPIC_HEAD = """
## Configs of a topic

Set a config when the topic is created, or with AlterConfigs (`kafka-configs.sh`). A topic without the config has the
value of the broker's option.

| config | default, or the broker's option | values | meaning |
|---|---|---|---|
"""


_SCOPES = {DYNAMIC: "dynamic", LISTENER: "per listener", MECHANISM: "per mechanism"}


def render() -> str:
    """Return the page: a row for each option of the broker and of a topic, in the order of their definition."""
    broker = [_row(option, _default(option)) for option in BROKER_OPTIONS]
    topic = [_row(option, f"`{option.broker}`" if option.broker else _default(option)) for option in TOPIC_OPTIONS]
    return _HEAD + "".join(broker) + _TOPIC_HEAD + "".join(topic)


def _row(option: Option, default: str) -> str:
    scopes = [name for scope, name in _SCOPES.items() if scope in option.scope]
    scope = f" *{', '.join(scopes).capitalize()}.*" if scopes else ""
    meaning = option.described + "".join(f" Also `{name}`." for name in option.also) + scope
    return f"| `{option.key}` | {default} | {_values(option)} | {meaning} |\n"


def _default(option: Option) -> str:
    text = value_text(option.default)
    return f"`{text}`" if text else ""


def _values(option: Option) -> str:
    if option.one_of:
        return ", ".join(f"`{value}`" for value in option.one_of)
    if option.kind in (Kind.INT, Kind.LONG, Kind.DOUBLE):
        most = "" if option.at_most in (INT32_MAX, INT64_MAX) else f" to {option.at_most}"
        return f"from {option.at_least}{most}" if option.at_least > -INT64_MAX else "any number"
    return "`true`, `false`" if option.kind is Kind.BOOLEAN else ""


if __name__ == "__main__":
    sys.stdout.write(render())
