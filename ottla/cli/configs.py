"""`ottla configs`: every option, from the one place that defines them. shell"""

import click

from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS, describe_topic
from ottla.broker.config.option import value_text
from ottla.cli.output import output_for
from ottla.cli.settings import load_or_exit, takes_settings


@click.command()
@takes_settings
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True)
def configs(
    properties: str | None, data_dir: str | None, listen: str | None, override: tuple[str, ...], format_name: str
) -> None:
    """List every option with value, default, origin and meaning.

    Takes the same file, flags and environment as `ottla serve`, and says what they come to and which of them decided.
    """
    loaded = load_or_exit(properties, data_dir, listen, override)
    config = loaded.config
    options = [
        (
            option.key,
            value_text(getattr(config, option.attribute)),
            value_text(option.default),
            str(config.origin(option.key)),
            option.meaning + "".join(f" Also {key}." for key in option.also),
        )
        for option in BROKER_OPTIONS
    ]
    broker_option = {option.key: option.broker or None for option in TOPIC_OPTIONS}
    topic = [
        (entry.name, entry.value, broker_option[entry.name], entry.meaning) for entry in describe_topic(config, {})
    ]
    output = output_for(format_name)
    output.table("options", ("option", "value", "default", "origin", "meaning"), options)
    output.table("topic configs", ("config", "value", "from", "meaning"), topic)
    output.close()
    for note in loaded.notes():
        click.echo(note, err=True)
