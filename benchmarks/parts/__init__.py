"""Modules of the benchmarks: shared ones here, those of one program in the folder of its name. shell"""

import sys
from pathlib import Path

# The programs measure the package of this checkout, even if another one is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
