"""The modules beside the tests, and the brokers and clients of the conformance scenario, can be imported."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
