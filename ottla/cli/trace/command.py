"""`ottla trace`: print requests and replies of a broker while they happen. shell"""

import json

import click

from ottla.cli.ctl.options import add_admin_options


@click.command()
@click.option("--client-id", metavar="NAME", help="Only requests of this client, and their replies.")
@click.option("--transactional-id", metavar="ID", help="Only requests that name this transactional id.")
@click.option("--group", metavar="ID", help="Only requests that name this group.")
@click.option("--api", metavar="NAME", help="Only requests of this API, such as EndTxn.")
@click.option("-v", "--verbose", is_flag=True, help="Show all fields and rows, not only the most important ones.")
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="Exit after this many lines.")
@add_admin_options
def trace(
    client_id: str | None,
    transactional_id: str | None,
    group: str | None,
    api: str | None,
    verbose: bool,
    count: int | None,
    url: str,
    admin_token_file: str | None,
    format_name: str,
) -> None:
    """Show requests and replies as they happen, one per line.

    It listens at the broker's admin port, which `ottla serve --admin-listen HOST:PORT` opens, until it is interrupted.
    All conditions must hold. The broker does not wait for a slow reader: a line reports the number of missing messages.

    Exit codes: 0 done, 1 the broker refused or ended, 2 usage, or no answer.
    """
    from urllib.parse import urlencode

    from ottla.cli.ctl.asking import Port
    from ottla.cli.trace.lines import line_of

    filters = {"client_id": client_id, "transactional_id": transactional_id, "group": group, "api": api}
    query = {name: value for name, value in filters.items() if value is not None}
    query |= {"verbose": "true"} if verbose else {}
    lines = Port(url, admin_token_file).lines(f"/v1/trace?{urlencode(query)}")
    left = count
    try:
        for each in lines:
            if each["kind"] == "listening":
                click.echo(f"listening at {url}", err=True)
                continue
            click.echo(json.dumps(each) if format_name == "json" else line_of(each))
            left = None if left is None else left - 1
            if left == 0:
                break
    except KeyboardInterrupt:
        pass  # Ctrl-C is the normal end
    finally:
        lines.close()
