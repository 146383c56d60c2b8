"""`ottla demo`: play stories about transactions on a broker, and audit its files. shell"""

import sys
from pathlib import Path

import click

from ottla.cli.output import USAGE, fail


@click.command()
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write the data directory to DIR, new or empty, and keep it. Plays two more stories, which damage it.",
)
@click.option("--bootstrap", metavar="HOST:PORT", help="Use a running broker instead of starting one.")
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="With --bootstrap: the broker's data directory, to audit.",
)
@click.option("--no-audit", is_flag=True, help="Leave out the audit.")
def demo(keep: Path | None, bootstrap: str | None, data_dir: Path | None, no_audit: bool) -> None:
    """Play stories about transactions on a broker, and audit its files.

    Starts a broker on a free port, and shows commits, aborts, a lost acknowledgement, a fenced producer and an open
    transaction. Each line with a tick was checked. The audit needs the extra ottla[audit].

    With --keep, a torn and a hanging transaction follow, and a second audit, which finds them. The other commands can
    then be tried on DIR.

    Exit codes: 0 all claims held, 1 some did not, 2 usage.
    """
    if keep is not None and bootstrap is not None:
        raise click.UsageError("--keep is for a broker that the demo starts: it excludes --bootstrap")
    if data_dir is not None and bootstrap is None:
        raise click.UsageError("--data-dir needs --bootstrap; --keep DIR writes the data directory to DIR")
    if keep is not None:
        _refuse_full(keep)
    from ottla.demo.play import Options, play  # imports kafka-python

    sys.exit(play(Options(bootstrap, data_dir, not no_audit, keep)))


def _refuse_full(directory: Path) -> None:
    """Create the directory if it is absent. Report one that is not empty, or not usable, on stderr, and exit."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        holds_files = any(directory.iterdir())
    except OSError as error:
        fail(USAGE, f"--keep {directory}: {error.strerror}; name a new or an empty directory")
    if holds_files:
        fail(USAGE, f"--keep {directory}: it is not empty; name a new or an empty directory")
