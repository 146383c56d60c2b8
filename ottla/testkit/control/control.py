"""The test control of a broker, connected to the broker's parts. shell"""

from ottla.broker.assembly import Assembly
from ottla.broker.dispatch import Dispatcher
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk
from ottla.broker.server import BrokerParts
from ottla.testkit.control.clock import MovableClock
from ottla.testkit.control.cluster import ClusterControl
from ottla.testkit.control.disk import SteeredDisk
from ottla.testkit.control.dispatch import Steering
from ottla.testkit.control.journal import Journal
from ottla.testkit.control.markers import SteeredMarkers
from ottla.testkit.control.old_release import table_of
from ottla.testkit.faults.plan import Plan


class Control(BrokerParts):
    """The test control of one broker process. `clock_over` sets `clock` and `journal`."""

    def __init__(self, as_release: str | None = None) -> None:
        """`as_release` is the Kafka release to imitate; ValueError if it is unknown."""
        self.plan = Plan()
        self._table = None if as_release is None else table_of(as_release)
        self.clock: MovableClock
        self.journal: Journal
        self.assembly: Assembly
        self.cluster: ClusterControl
        self.real_clock: Clock

    def clock_over(self, real: Clock) -> Clock:
        self.real_clock = real
        self.clock = MovableClock(real)
        self.journal = Journal(real)
        return self.clock

    def disk(self, open_files_max: int) -> Disk:
        return SteeredDisk(open_files_max, self.plan)

    def on_assembly(self, assembly: Assembly) -> None:
        self.assembly = assembly
        broker = assembly.broker
        self.cluster = ClusterControl(assembly, self.plan)
        for each in broker.brokers:
            SteeredMarkers(each, self.plan)
        if self._table is not None:
            assembly.dispatchers = [Dispatcher(each, self._table, first_use=True) for each in broker.brokers]
        for dispatcher, each in zip(assembly.dispatchers, broker.brokers, strict=True):
            Steering(dispatcher, each, self.cluster, self.plan, self.journal, self.real_clock)
