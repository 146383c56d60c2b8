"""`ottla configs`: list every option of the broker. shell"""

import dataclasses
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import click

from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS, Loaded, describe_topic
from ottla.broker.config.listener_options import LISTENER_OPTIONS, LISTENER_PREFIX, listener_config, listener_key
from ottla.broker.config.option import DEFAULT, value_text
from ottla.cli.output import fail, output_for, takes_format
from ottla.cli.settings import load_or_exit, takes_flags
from ottla.printable import printable

NO_SUCH_OPTION = 2


class _Option(NamedTuple):
    option: str
    value: str
    default: str
    origin: str
    meaning: str


class _TopicConfig(NamedTuple):
    config: str
    value: str
    broker_option: str | None
    meaning: str


@click.command()
@takes_flags
@click.argument("what", metavar="[server.properties] [GLOB]", nargs=-1, type=click.Path())
@click.option("--changed", is_flag=True, help="List only options that differ from their default.")
@takes_format
def configs(
    what: tuple[str, ...],
    data_dir: str | None,
    listen: str | None,
    override: tuple[str, ...],
    changed: bool,
    format_name: str,
) -> None:
    """List options with value, default, origin and meaning.

    Takes the same file, flags and environment as `ottla serve`, and shows the resulting values and their origins.
    GLOB, such as `'log.retention.*'`, selects options by name; without it all are listed. Options of single listeners
    are listed if they are set; `'listener.name.outside.*'` lists all that this listener can have.

    Exit codes: 0 listed, 2 usage, an impossible value, or no option of that name.
    """
    properties, glob = _file_and_glob(what)
    loaded = load_or_exit(properties, data_dir, listen, override)
    every = [*_options(loaded), *_listener_options(loaded, not_set=glob.startswith(LISTENER_PREFIX))]
    options = [each for each in every if fnmatchcase(each.option, glob)]
    topic = [each for each in _topic_configs(loaded) if fnmatchcase(each.config, glob)]
    if not options and not topic:
        _refuse(glob)
    if changed:
        own = {each.option for each in every if each.origin != str(DEFAULT)}
        options = [each for each in options if each.option in own]
        topic = [each for each in topic if each.broker_option in own]
    output = output_for(format_name)
    output.entries("options", _Option._fields, options, _option_line)
    output.entries("topic configs", ("config", "value", "from", "meaning"), topic, _topic_line)
    output.close()
    for note in loaded.notes():
        click.echo(printable(note), err=True)


def _file_and_glob(what: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the properties file (the argument that exists as a file), and the pattern (the other one)."""
    files = [each for each in what if Path(each).exists() and not Path(each).is_dir()]
    globs = [each for each in what if each not in files]
    if len(files) > 1 or len(globs) > 1:
        raise click.UsageError(f"one properties file and one pattern at most, not {' '.join(what)}")
    return (files[0] if files else None), (globs[0] if globs else "*")


def _options(loaded: Loaded) -> list[_Option]:
    config = loaded.config
    return [
        _Option(
            option.key,
            option.to_text(getattr(config, option.attribute)),
            value_text(option.default),
            str(config.origin(option.key)),
            option.meaning + "".join(f" Also {key}." for key in option.also),
        )
        for option in BROKER_OPTIONS
    ]


def _listener_options(loaded: Loaded, not_set: bool) -> Iterator[_Option]:
    """Yield the options that are set for single listeners, and with `not_set` all others that a listener can have.
    The default is the value without the option: the listener's for one of its mechanisms, otherwise that for all."""
    config = loaded.config
    for name in dict.fromkeys((*(listener.name for listener in config.listeners), *config.listener_options)):
        own = config.listener_options.get(name, {})
        for_all = listener_config(dataclasses.replace(config, listener_options={}), name)
        for_listener = listener_config(config, name)
        for rest, option in LISTENER_OPTIONS.items():
            if not_set or rest in own:
                inherited = for_all if rest == option.key else for_listener
                default = value_text(getattr(inherited, option.attribute, option.default))
                keys = (listener_key(name, rest), listener_key(name, option.key), option.key)
                origin = next((config.origins[key] for key in keys if key in config.origins), DEFAULT)
                value = option.to_text(own.get(rest, default))
                yield _Option(keys[0], value, option.to_text(default), str(origin), option.meaning)


def _topic_configs(loaded: Loaded) -> list[_TopicConfig]:
    entries = {entry.name: entry for entry in describe_topic(loaded.config, {})}
    return [
        _TopicConfig(option.key, entries[option.key].value or "", option.broker or None, entries[option.key].meaning)
        for option in TOPIC_OPTIONS
    ]


def _option_line(row: Sequence[str]) -> str:
    _, value, default, origin, _ = row
    return f"{_show(value)}  ({origin}{'' if value == default else f'; default {_show(default)}'})"


def _topic_line(row: Sequence[str]) -> str:
    _, value, broker_option, _ = row
    return f"{_show(value)}  (from {broker_option})" if broker_option else _show(value)


def _show(value: str) -> str:
    return value or "(empty)"


def _refuse(glob: str) -> None:
    known = [option.key for option in (*BROKER_OPTIONS, *TOPIC_OPTIONS)]
    near = get_close_matches(glob, known, 1)
    hint = f"; did you mean {near[0]}?" if near else "" if "*" in glob else f"; try '*{glob}*'"
    fail(NO_SUCH_OPTION, f"no option is named {glob}, and there is no such file{hint}")
