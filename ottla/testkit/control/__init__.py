"""Test control of an Ottla broker: its clock, its faults, its crash. shell"""

from typing import Final

KIT_CLIENT_ID: Final = "ottla-testkit"
"""Client id of the test kit's own requests: faults do not affect them, and journals do not contain them."""
