"""What a test steers in a broker of ours: its time, its faults, its end. shell"""

from typing import Final

KIT_CLIENT_ID: Final = "ottla-testkit"
"""Of whoever asks on a test's behalf: no fault strikes its requests, and no journal has them."""
