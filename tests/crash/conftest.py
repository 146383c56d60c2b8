"""Import paths of the modules next to the tests, and of the brokers and clients of the conformance scenario."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
