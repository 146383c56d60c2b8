"""How a job starts as a script of spark-submit. shell"""

import sys
from pathlib import Path


def mend_path() -> None:
    """Python puts the folder of a script first on its path, where modules of ours would shadow others."""
    ours = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ours]
