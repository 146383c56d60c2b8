"""Start of a job as a script of spark-submit. shell"""

import importlib.util
import platform
import sys
from pathlib import Path

from ottla.audit.program import COULD_NOT_RUN


def mend_path() -> None:
    """Remove this folder, which Python puts first for a script, from the path: its modules would shadow others."""
    ours = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ours]


def need_click() -> None:
    """Exit if click is missing: a driver may have only the packages that workers need."""
    if importlib.util.find_spec("click") is None:
        error = f"Python {platform.python_version()} on {platform.node()} lacks click: pip install 'ottla[spark]' there"
        sys.stderr.write(f"ottla: {error}, or pip install click\n")
        sys.exit(COULD_NOT_RUN)
