"""Faults of a proxy: those of requests and replies. pure"""

from ottla.testkit.faults.fault import OF_THE_BROKER, Fault, FaultError
from ottla.testkit.faults.plan import Plan


class ProxyPlan(Plan):
    """A plan that refuses faults which only an Ottla broker supports."""

    def check(self, fault: Fault) -> None:
        """Raise FaultError for a fault inside a broker."""
        if fault.at in OF_THE_BROKER or fault.do == "crash":
            what = f"{fault.do!r} at {fault.at!r}"
            raise FaultError(f"{what} needs an Ottla broker: a proxy supports only faults of requests and replies")
