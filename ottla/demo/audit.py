"""Audits of the demo, of the files of the running broker. shell"""

import json
import time
from pathlib import Path

from ottla.demo.commands import quote_ottla, run_ottla
from ottla.demo.damage import LATE_ID, TORN_ID
from ottla.demo.screen import Screen
from ottla.demo.stories import AUDIT_LOG, HANGING_ID, LEDGER, SHIPMENTS

# The checks of an audit skip what is younger than a minute.
_SETTLED_MS = 61_000


def missing_libraries() -> str | None:
    """Return the reason why the audit cannot run here, or None."""
    from ottla.scan.needs import lacking

    return f"{', '.join(lacking())} is not installed (pip install 'ottla[audit]')" if lacking() else None


def audit(screen: Screen, data_dir: Path) -> None:
    """Print the audit, or the reason why it cannot run."""
    screen.section(
        "What the files say",
        "The audit reads the segment files in place, while the broker runs, and resolves every transaction.",
        f"It shows the open one in {SHIPMENTS} with its transactional id. On a cluster, spark-submit does the same.",
    )
    if _is_left_out(screen):
        return
    done = quote_ottla(screen, "audit", str(data_dir))
    named = any(HANGING_ID in line and SHIPMENTS in line for line in done.stdout.splitlines())
    screen.claim(named, f"the audit names {HANGING_ID}, whose transaction is open in {SHIPMENTS}")
    screen.claim(done.returncode == 0, "nothing is torn, lost, duplicated or out of order")


def audit_damage(screen: Screen, data_dir: Path) -> None:
    """Print the audit after the damaging stories, which must find both and nothing else."""
    screen.section(
        "What the files say now",
        "The audit gives a broker a minute to write markers. All of them are written: the readers above have read up",
        "to the end. So --as-of sets the time of this audit a minute ahead, instead of waiting.",
    )
    if _is_left_out(screen):
        return
    arguments = ["audit", str(data_dir), "--as-of", str(round(time.time() * 1000) + _SETTLED_MS)]
    quote_ottla(screen, *arguments)
    rows = [json.loads(line) for line in run_ottla(*arguments, "--format", "json").stdout.splitlines()]
    found = [row for row in rows if row["severity"] != "info"]
    for check, transactional_id, topic in (("torn", TORN_ID, AUDIT_LOG), ("hanging", LATE_ID, LEDGER)):
        place = check, transactional_id, topic
        named = [(row["check"], row["transactional_id"], row["topic"]) for row in found].count(place) == 1
        screen.claim(named, f"{check}: the audit names the transaction of {transactional_id} in {topic}")
    screen.claim(len(found) == 2, "it finds nothing else")


def _is_left_out(screen: Screen) -> bool:
    """Return whether libraries are missing, and print which."""
    missing = missing_libraries()
    if missing is not None:
        screen.line(f"  Left out: {missing}. The stories above do not need it.")
    return missing is not None
