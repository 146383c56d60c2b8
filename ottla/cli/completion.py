"""`ottla completion`: the script that completes commands, options, choices and paths in a shell. shell"""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands in a shell.

    bash and zsh: `eval "$(ottla completion bash)"` in ~/.bashrc or ~/.zshrc. fish: `ottla completion fish >
    ~/.config/fish/completions/ottla.fish`.
    """
    found = get_completion_class(shell)
    assert found is not None, "click completes each of SHELLS"
    click.echo(found(context.find_root().command, {}, "ottla", "_OTTLA_COMPLETE").source())
