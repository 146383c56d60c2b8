"""The audit on Spark at the end of the demo, over the files of the broker that is still running. shell"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ottla.testkit.demo.screen import Screen
from ottla.testkit.demo.stories import HANGING_ID, SHIPMENTS

AUDIT_TIMEOUT_S = 120
_RUN = "import sys; from ottla.spark_jobs import audit; sys.exit(audit.main(sys.argv[1:]))"


def what_is_missing() -> str | None:
    """Why Spark cannot run here, or None."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'ottla[spark]')"
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else shutil.which("java")
    try:
        # macOS has a /usr/bin/java that only says that there is no Java.
        found = (
            java is not None and subprocess.run([java, "-version"], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        found = False
    return None if found else "Java is not installed (Spark needs Java 17)"


def audit(screen: Screen, data_dir: Path) -> None:
    """Print the audit, or why there is none."""
    screen.section(
        "What the files say",
        "Spark reads the broker's segment files where they lie, while the broker runs, and resolves every transaction.",
        f"The hanging one in {SHIPMENTS} comes out with its transactional id. Starting Spark takes some seconds.",
    )
    missing = what_is_missing()
    if missing is not None:
        screen.line(f"  Left out: {missing}. Everything above needed neither.")
        return
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(data_dir)],
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
    screen.claim(done.returncode in (0, 1), "every file was read")
