"""The `ottla` command. Its subcommands are imported when they are called, so that help is instant. shell"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from ottla import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Commands by purpose. Each name has the module with a function of that name, and the line of its help.
GROUPS: Final = {
    "Run": {
        "demo": ("ottla.cli.demo", "Play stories about transactions on a broker, and audit its files."),
        "serve": ("ottla.cli.serve", "Run the broker."),
        "configs": ("ottla.cli.configs", "List options with value, default, origin and meaning."),
        "ctl": ("ottla.cli.ctl.command", "Query and control a running broker or proxy over its admin port."),
        "completion": ("ottla.cli.completion", "Print the script that completes commands in a shell."),
    },
    "Use": {
        "topics": ("ottla.cli.topics.command", "List, describe, create and delete topics of any Kafka."),
        "produce": ("ottla.cli.produce.command", "Send lines of stdin as records, in transactions if asked."),
        "consume": (
            "ottla.cli.consume.command",
            "Print the records of a topic, each with its fate: committed, aborted, open, or none.",
        ),
    },
    "Look": {
        "health": ("ottla.cli.health", "Check whether a broker is ready, and print what is missing."),
        "top": (
            "ottla.cli.top.command",
            "Watch open transactions, partitions that hold readers back, and lagging groups.",
        ),
        "trace": ("ottla.cli.trace.command", "Show requests and replies as they happen, one per line."),
        "acl": (
            "ottla.cli.acl.command",
            "Show which ACL allows or denies an operation, or which ACL is missing.",
        ),
        "txn": (
            "ottla.cli.txn.command",
            "Find transactions that hold back committed reads, and those that will never end; end them.",
        ),
        "ids": ("ottla.cli.ids", "Show or raise the counter of producer ids in ZooKeeper."),
        "audit": ("ottla.spark_jobs.command_lines", "Audit data directories in place, or a cluster over the wire."),
        "alert": ("ottla.spark_jobs.command_lines", "Report transactions that begin to hang, while a broker runs."),
        "inspect": ("ottla.cli.inspect.command", "Show the contents and the state of a data directory or a cluster."),
        "dump": (
            "ottla.cli.dump.command",
            "Print segment files, and the indexes and checkpoints of a log, or the records of a cluster.",
        ),
    },
    "Mend": {
        "repair": (
            "ottla.cli.repair.command",
            "Rebuild indexes and snapshots from the batches; cut damaged logs if asked.",
        ),
    },
    "Move": {
        "pull": ("ottla.cli.pull.command", "Copy partitions of a cluster into a log directory."),
        "export": (
            "ottla.spark_jobs.command_lines",
            "Write committed records to Parquet.",
        ),
        "graduate": (
            "ottla.cli.graduate.command",
            "Turn a data directory into one that Apache Kafka 4 starts on.",
        ),
    },
    "Test": {
        "proxy": ("ottla.cli.proxy", "Inject faults between clients and any Kafka, and record the traffic."),
        "certs": ("ottla.cli.certs", "Write certificates for tests of TLS."),
        "corpus": ("ottla.cli.corpus", "Write log directories that are hard to read, with the expected results."),
    },
    "For tests of Ottla itself": {
        "check-history": ("ottla.cli.check_history", "Check a client history (JSON lines) against a data directory."),
    },
}
COMMANDS: Final = {name: command for group in GROUPS.values() for name, command in group.items()}
PIPE_CLOSED: Final = 141
"""Exit code of a program that SIGPIPE ended, as in a shell: the reader closed the pipe, such as `| head`."""


class LateCommands(click.Group):
    """A group that knows the names and help lines of its commands, and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its arguments. An unknown command ends with the known one that is most like it."""
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            from ottla.suggestion import nearest_name

            if near := nearest_name(name, COMMANDS):
                ctx.fail(f"No such command {name!r}. Did you mean {near!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), line) for name, (_, line) in group.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        commands = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items()]
        # Not the completion of click.Group, which would import every command for its line of help.
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [item for item in commands if item.value.startswith(incomplete)] + options

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command. A closed pipe ends every command with `PIPE_CLOSED`, which no command uses otherwise."""
        stdout = sys.stdout
        try:
            return super().main(*args, **extra)
        except SystemExit:
            # Click replaces stdout if the pipe is closed, and exits with 1, which means damage in some commands.
            if sys.stdout is not stdout:
                raise SystemExit(PIPE_CLOSED) from None
            raise
        finally:
            try:
                stdout.flush()
            except BrokenPipeError:
                # The interpreter flushes stdout at its end, which must not fail.
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                raise SystemExit(PIPE_CLOSED) from None


def _print_version(context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        import platform

        from ottla.protocol.walked import describe_build

        build = f"{platform.python_implementation()} {platform.python_version()}, {describe_build()}"
        click.echo(f"ottla, version {__version__} ({build})")
        context.exit()


@click.command(cls=LateCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and the Python that runs it, and exit.",
)
def main() -> None:
    """Kafka's small sibling: the exactly-once half of Kafka in one process, on Kafka's own files."""


if __name__ == "__main__":
    main()
