"""Shell completion of every command, option and argument in the tree of commands."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import click
import pytest
from click.shell_completion import BashComplete, get_completion_class
from click.testing import CliRunner

from ottla.cli.main import COMMANDS, main

# Words of a metavar that names a path in the file system.
PATHS = {"DIR", "FILE", "FOLDER", "OUT", "properties"}
SHELLS = ("bash", "zsh", "fish")
SLOW = {"asyncio", "kafka", "numba", "numpy", "ottla.broker.server", "pyarrow", "pyspark", "uvloop"}


def commands(command=main, path=()):
    """Yield (words of the path, command) of every command and group."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


def parameters(kind):
    for path, command in commands():
        for parameter in command.params:
            if isinstance(parameter, kind):
                yield pytest.param(path, parameter, id=" ".join((*path, parameter.opts[0])))


def complete(words, incomplete, shell="bash"):
    return get_completion_class(shell)(main, {}, "ottla", "_OTTLA_COMPLETE").get_completions(list(words), incomplete)


def values(words, incomplete):
    return [item.value for item in complete(words, incomplete)]


def is_path(parameter):
    if isinstance(parameter.type, click.Path):
        return True
    return bool(PATHS & set(re.split(r"[^A-Za-z]+", parameter.metavar or "")))


def is_free(parameter):
    """Return whether the parameter takes any value: neither a path nor a choice."""
    return not is_path(parameter) and not isinstance(parameter.type, click.Choice)


def words_before(path, argument):
    """Return the command with an argument in each place before this one."""
    command = dict(commands())[path]
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    return [*path, *("x" for _ in arguments[: arguments.index(argument)])]


def test_the_commands_are_completed_with_their_lines_of_help():
    assert {item.value: item.help for item in complete([], "")} == {name: line for name, (_, line) in COMMANDS.items()}
    assert values([], "tx") == ["txn"]
    assert set(values(["txn"], "")) == {"list", "why", "orphans", "fence", "abort"}


@pytest.mark.parametrize("path", [pytest.param(path, id=" ".join(path) or "ottla") for path, _ in commands()])
def test_every_option_of_a_command_is_completed(path):
    command = dict(commands())[path]
    options = [one for one in command.params if isinstance(one, click.Option)]
    long = {name for option in options for name in (*option.opts, *option.secondary_opts) if name.startswith("--")}
    assert long | {"--help"} <= set(values(path, "--"))


@pytest.mark.parametrize(("path", "option"), list(parameters(click.Option)))
def test_the_value_of_an_option_is_completed(path, option):
    if option.is_flag:
        return
    words = [*path, option.opts[0]]
    found = complete(words, "")
    if isinstance(option.type, click.Choice):
        assert [item.value for item in found] == list(option.type.choices)
        assert values(words, option.type.choices[0][:2])[0] == option.type.choices[0]
    elif is_path(option):
        assert [item.type for item in found] in (["file"], ["dir"])


def test_the_last_of_several_names_is_completed_without_those_before_it():
    assert values(["audit", "--checks"], "hanging,to") == ["hanging,torn"]
    assert "hanging" in values(["audit", "--checks"], "") and "torn,torn" not in values(["audit", "--checks"], "torn,")
    assert values(["export", "--columns"], "offset,timestampT") == ["offset,timestampType"]


@pytest.mark.parametrize(("path", "argument"), list(parameters(click.Argument)))
def test_an_argument_that_is_a_path_is_completed(path, argument):
    found = complete(words_before(path, argument), "")
    if isinstance(argument.type, click.Choice):
        assert {item.value for item in found} == set(argument.type.choices)
    else:
        kinds = [item.type for item in found]
        assert kinds in (["file"], ["dir"]) if is_path(argument) else kinds == []


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_completions_in_its_own_format(shell, monkeypatch, capsys):
    line, position = ("ottla dump --format j", 3) if shell != "fish" else ("ottla dump --format j", "j")
    answer = {"bash": "plain,json\n", "zsh": "plain\njson\n_\n", "fish": "plain,json\n"}[shell]
    monkeypatch.setenv("_OTTLA_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(position))
    with pytest.raises(SystemExit):
        main([], prog_name="ottla")
    assert capsys.readouterr().out == answer


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_an_option_after_loading_the_script(tmp_path):
    program = tmp_path / "ottla"
    code = shlex.quote("from ottla.cli.main import main; main(prog_name='ottla')")
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {code} "$@"\n')
    program.chmod(0o755)
    script = 'eval "$(ottla completion bash)"; COMP_WORDS=(ottla inspect --ver); COMP_CWORD=2; '
    script += "_ottla_completion ottla; echo ${COMPREPLY[@]}"
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "--verify\n"), done.stderr


@pytest.mark.parametrize("line", ["ottla ", "ottla serve --", *(f"ottla {name} --" for name in ("audit", "export"))])
def test_completion_imports_no_slow_module(line):
    script = "import sys; from ottla.cli.main import main\n"
    script += f"try: main([], prog_name='ottla')\nexcept SystemExit: print(sorted({SLOW} & set(sys.modules)))"
    asked = {"_OTTLA_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **asked}, check=True
    ).stdout
    assert told.splitlines()[-1] == "[]"
    assert len(told.splitlines()) > 2


def test_the_command_tree_has_every_depth_and_kind_of_parameter():
    assert BashComplete.name in SHELLS
    assert {len(path) for path, _ in commands()} == {0, 1, 2, 3}
    given = [parameter.values[1] for parameter in (*parameters(click.Option), *parameters(click.Argument))]
    assert sum(map(is_path, given)) > 5 and sum(map(is_free, given)) > 5


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script_of_each_shell(shell):
    result = CliRunner().invoke(main, ["completion", shell], prog_name="ottla")
    assert result.exit_code == 0
    assert f"_OTTLA_COMPLETE={shell}_complete" in result.stdout
