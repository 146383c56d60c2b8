"""Renders docs/options.md from the definitions of the options: `python -m ottla.testkit.options_page`. free"""

import sys

from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS
from ottla.broker.config.option import INT32_MAX, INT64_MAX, Kind, Option, value_text

_HEAD = """# All options

Made from `ottla/broker/config` by `make docs`; a test holds it to the code. Names, defaults and ranges are Kafka's
where the meaning does not say that the option is Ottla's own. Where values come from, and which change while the
broker runs: [run it](run.md#options).

## Of the broker

| option | default | values | meaning |
|---|---|---|---|
"""

_TOPIC_HEAD = """
## Of a topic

Set when it is created, or with AlterConfigs (`kafka-configs.sh`). A topic that says nothing takes the broker's.

| config | where it says nothing | values | meaning |
|---|---|---|---|
"""


def render() -> str:
    """The page: a row for each option of the broker and of a topic, in the order of their definition."""
    broker = [_row(option, _default(option)) for option in BROKER_OPTIONS]
    topic = [_row(option, f"`{option.broker}`" if option.broker else _default(option)) for option in TOPIC_OPTIONS]
    return _HEAD + "".join(broker) + _TOPIC_HEAD + "".join(topic)


def _row(option: Option, default: str) -> str:
    meaning = option.described + "".join(f" Also `{name}`." for name in option.also)
    return f"| `{option.key}` | {default} | {_values(option)} | {meaning} |\n"


def _default(option: Option) -> str:
    text = value_text(option.default)
    return f"`{text}`" if text else ""


def _values(option: Option) -> str:
    if option.one_of:
        return ", ".join(f"`{value}`" for value in option.one_of)
    if option.kind in (Kind.INT, Kind.LONG, Kind.DOUBLE):
        unbounded = option.at_most in (INT32_MAX, INT64_MAX)
        return f"from {option.at_least}" + ("" if unbounded else f" to {option.at_most}")
    return "`true`, `false`" if option.kind is Kind.BOOLEAN else ""


if __name__ == "__main__":
    sys.stdout.write(render())
