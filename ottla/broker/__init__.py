"""The daemon: log, transactions, groups and the API handlers over them. pure"""

from typing import Final

MOST_BROKERS: Final = 9
"""The most brokers that one process presents itself as."""
