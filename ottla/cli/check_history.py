"""`ottla check-history`: check a recorded client history against a data directory. shell"""

import sys
from pathlib import Path

import click


@click.command()
@click.argument("history", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
def check_history(history: Path, data_dir: Path) -> None:
    """Check a client history (JSON lines) against a data directory.

    Prints one line per anomaly; exits with 1 if one of them has no known cause. `ottla.testkit.checker` describes the
    format of a history.
    """
    from ottla.testkit.checker import report  # imports decoders and the scanner, which --help does not need

    sys.exit(report(history, data_dir))
