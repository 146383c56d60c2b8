"""`ottla proxy`: faults between clients and any Kafka. shell"""

import asyncio
import sys
from functools import partial
from pathlib import Path

import click

from ottla.cli.admin import admin_or_exit, opens_admin_port, warn_of_readers
from ottla.cli.logs import log_to_stderr
from ottla.cli.output import fail
from ottla.printable import printable

NEVER_STRUCK, REFUSED = 1, 2
_file = partial(click.Path, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--upstream", metavar="HOST:PORT", required=True, help="A bootstrap server of the cluster, in plain text."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Bootstrap address for clients. Brokers get the ports above, or any with port 0.",
)
@click.option(
    "--advertised-host",
    metavar="HOST",
    help="Host that clients connect to.  [default: the host at which they reach the proxy]",
)
@opens_admin_port("Open an admin port, where faults are planned while the proxy runs.")
@click.option("--faults", "plan", metavar="FILE", type=_file(exists=True), help="A list of faults, as JSON or YAML.")
@click.option(
    "--history", metavar="FILE", type=_file(writable=True), help="Write lines for `ottla check-history` at the end."
)
@click.option(
    "--events",
    "event_file",
    metavar="FILE",
    type=_file(writable=True),
    help="Write each request and reply as JSON at the end.",
)
@click.option(
    "--journal-bytes",
    metavar="BYTES",
    type=click.IntRange(1),
    default=67_108_864,
    show_default=True,
    help="Bytes of traffic that are kept for these files; the oldest are dropped.",
)
@click.option("--all-must-strike", is_flag=True, help="Exit with 1 if a fault has never fired.")
def proxy(
    upstream: str,
    listen: str,
    advertised_host: str | None,
    admin_listen: str | None,
    admin_token_file: str | None,
    plan: Path | None,
    history: Path | None,
    event_file: Path | None,
    journal_bytes: int,
    all_must_strike: bool,
) -> None:
    """Inject faults between clients and any Kafka, and record the traffic.

    Prints `ready HOST:PORT` when clients can connect, and `admin http://HOST:PORT` for `ottla ctl` if it has that port.
    Every broker of the cluster gets a port of the proxy, which clients use. SIGTERM and SIGINT end the proxy. It then
    prints how often each fault has fired.

    Exit codes: 0 ended, 1 a fault has never fired and --all-must-strike, 2 usage.
    """
    from ottla.cli.plan_file import PlanError, read_plan
    from ottla.protocol.errors import ProtocolError
    from ottla.testkit.faults.fault import FaultError, parse_fault
    from ottla.testkit.proxying.addresses import parse_address
    from ottla.testkit.proxying.main import leave, serve
    from ottla.testkit.proxying.proxy import Proxy

    admin = admin_or_exit(admin_listen, admin_token_file)
    log_to_stderr("text")
    if admin_token_file is not None:
        warn_of_readers(admin_token_file)

    def say_ready(admin_address: str | None) -> None:
        click.echo(f"ready {running.bootstrap}" + (f"\nadmin {admin_address}" if admin_address else ""))

    try:
        running = Proxy(parse_address(upstream), parse_address(listen), advertised_host, journal_bytes)
        for given in read_plan(plan) if plan is not None else ():
            running.plan.add(parse_fault(given))
        asyncio.run(serve(running, say_ready, admin))
    except (FaultError, PlanError, ProtocolError, OSError) as error:
        fail(REFUSED, error)
    leave(running, history, event_file)
    for fault in running.plan:
        click.echo(printable(f"fault {fault.id}: {fault.describe()}: fired {fault.hits}, seen {fault.seen}"), err=True)
    if all_must_strike and not all(fault.hits for fault in running.plan):
        sys.exit(NEVER_STRUCK)
