"""Fuzzes everything that a client can send before its login: frames, SASL, TLS; and watches the broker meanwhile.

    python -m tests.fuzz_surface --for 1h --seed 7
    python -m tests.fuzz_surface --seed 7 --visit 1234          one visit again

A broker with a listener of every protocol is visited by hostile clients. Each visit is drawn from the seed and its
number. At the same time a valid client asks and logs in. At the end, no hostile client has got access or left
anything in the broker, no log line shows a bug, the valid client was answered, and the broker stops cleanly.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

import click

from tests.fuzz_surface.fuzz import Fuzz
from tests.fuzz_surface.visits import Visit
from tests.fuzz_surface.watched import Watched


def seconds_of(context, parameter, given):
    found = re.fullmatch(r"(\d+)([smh])", given or "")
    if given and found is None:
        raise click.BadParameter("such as 30s, 10m or 1h", context, parameter)
    return found and int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


@click.command(help=__doc__.splitlines()[0])
@click.option("--for", "seconds", metavar="TIME", callback=seconds_of, help="How long: 30s, 10m, 1h.")
@click.option("--visits", type=int, help="How many visits, in place of a time.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--visit", type=int, help="Only this one.")
@click.option("--clients", type=int, default=8, show_default=True, help="Hostile clients at once.")
def main(seconds, visits, seed, visit, clients):
    with tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as directory:
        if visit is not None:
            broker = Watched(Path(directory))
            Visit(seed, visit, broker.doors).play([])
            click.echo(f"exit code {broker.stop()}\n{broker.log.read_text()}")
            return
        done = Fuzz(Path(directory), seed, visits or (None if seconds else 2000), seconds, clients).run()
        click.echo(json.dumps(done.figures))
        for line, count in done.lines[:60]:
            click.echo(f"{count:8} {line}")
        for finding in done.findings:
            click.echo(f"FOUND: {finding}")
        sys.exit(1 if done.findings else 0)


if __name__ == "__main__":
    main()
