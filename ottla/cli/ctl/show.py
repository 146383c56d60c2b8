"""Replies of an admin port as sentences and tables. pure"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.cli.output import Output
from ottla.printable import host_and_port
from ottla.protocol.times import duration, utc

FAULT_COLUMNS: Final = ("id", "do", "at", "api", "where", "error", "ms", "nth", "times", "seen", "hits", "held")
LEVEL_COLUMNS: Final = ("logger", "level", "until_ms", "then")
BROKER_COLUMNS: Final = ("broker", "state", "metadata", "disconnected_from", "leads")
CLOCK_COLUMNS: Final = ("now_ms", "ahead_ms", "frozen")

Answer = Mapping[str, Any]


def show_status(output: Output, broker: Answer, clock: Answer | None, faults: Sequence[Answer] | None) -> None:
    """Show the broker's identity, and the clock and faults that a test has set."""
    addresses = [f"{each['name']}://{host_and_port(each['host'], each['port'])}" for each in broker["listeners"]]
    where = ", ".join(addresses) or "no address for clients"
    output.line(
        "status",
        f"Ottla {broker['version']}, node {broker['node_id']} of cluster {broker['cluster_id']}, serves {where}. "
        f"It was started at {utc(broker['started_ms'])}.",
    )
    columns = ("started_ms", "data_dir", "test_control")
    output.table("broker", columns, [(broker["started_ms"], broker["data_dir"], clock is not None)])
    output.table("features", ("feature", "level"), sorted(broker["features"].items()))
    if clock is not None:
        output.table("clock", CLOCK_COLUMNS, [[clock[name] for name in CLOCK_COLUMNS]])
    if faults is not None:
        show_faults(output, faults)


def show_proxy(output: Output, proxy: Answer, faults: Sequence[Answer]) -> None:
    """Show a proxy's addresses, its connections, and the faults that a test has set."""
    connections = proxy["connections"]
    output.line(
        "status",
        f"Ottla {proxy['version']}, a proxy at {proxy['bootstrap']} in front of {proxy['upstream']}. It has accepted "
        f"{connections} connection{'' if connections == 1 else 's'}.",
    )
    output.table("brokers", ("address", "port"), [(each["address"], each["port"]) for each in proxy["brokers"]])
    output.table("requests", ("api", "count"), sorted(proxy["requests"].items()))
    show_faults(output, faults)


def show_clock(output: Output, clock: Answer) -> None:
    """Show the broker's time."""
    ahead_ms = clock["ahead_ms"]
    against = "the time of the machine"
    if ahead_ms:
        against = f"{duration(abs(ahead_ms))} {'ahead of' if ahead_ms > 0 else 'behind'} the machine"
    stands = ", and stopped" if clock["frozen"] else ""
    output.line("answer", f"It is {utc(clock['now_ms'])} for the broker: {against}{stands}.")
    output.table("clock", CLOCK_COLUMNS, [[clock[name] for name in CLOCK_COLUMNS]])


def show_faults(output: Output, faults: Sequence[Answer]) -> None:
    """Show faults with their counters. `times` is null for a fault that fires every time."""
    rows = [[_cell(name, fault.get(name)) for name in FAULT_COLUMNS] for fault in faults]
    output.table("faults", FAULT_COLUMNS, rows)


def show_brokers(output: Output, brokers: Sequence[Answer]) -> None:
    """Show the brokers of a process. `leads` is the number of partitions that a broker leads."""
    rows = [[_cell(name, each[name]) for name in BROKER_COLUMNS] for each in brokers]
    output.table("brokers", BROKER_COLUMNS, rows)


def show_levels(output: Output, levels: Sequence[Answer]) -> None:
    """Show loggers with their levels. `until_ms` is null for a level without an end."""
    output.table("levels", LEVEL_COLUMNS, [[each[name] for name in LEVEL_COLUMNS] for each in levels])


def _cell(name: str, value: Any) -> Any:
    if name == "disconnected_from":
        return ", ".join(map(str, value)) or None
    if name == "where" and value is not None:
        return ", ".join(f"{key}={given}" for key, given in value.items())
    return value
