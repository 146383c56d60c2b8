"""What the programs are made of: what several share stands here, what one needs in the folder of its name. shell"""

import sys
from pathlib import Path

# The programs measure the package that they stand beside, whatever else is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
