"""Audit at the end of the demo, of the files of the running broker. shell"""

import subprocess
import sys
from pathlib import Path

from ottla.demo.screen import Screen
from ottla.demo.stories import HANGING_ID, SHIPMENTS

AUDIT_TIMEOUT_S = 120


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
    missing = missing_libraries()
    if missing is not None:
        screen.line(f"  Left out: {missing}. The stories above do not need it.")
        return
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "audit", str(data_dir)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=AUDIT_TIMEOUT_S,
        check=False,
    )
    screen.quote(done.stdout)
    if not done.stdout.strip():
        screen.quote(done.stderr[-2000:])
    named = any(HANGING_ID in line and SHIPMENTS in line for line in done.stdout.splitlines())
    screen.claim(named, f"the audit names {HANGING_ID}, whose transaction is open in {SHIPMENTS}")
    screen.claim(done.returncode == 0, "nothing is torn, lost, duplicated or out of order")
