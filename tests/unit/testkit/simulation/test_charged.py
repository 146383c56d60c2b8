"""The simulation detects what virtual time hides: an event with too high a charge."""

from lab.simulation.charged import MOST_EVENT_US, ChargeMeter
from lab.simulation.world import World
from ottla.broker.turns import Turns


def turns(found):
    turns = Turns([].append, [].append)
    ChargeMeter(turns, lambda what, cost_us: found.append(cost_us))
    return turns


def test_an_event_with_too_high_a_charge_is_reported():
    found = []
    charged = turns(found)
    charged.event(lambda: charged.charge(MOST_EVENT_US))
    assert found == []
    charged.event(lambda: charged.charge(MOST_EVENT_US + 1))
    assert found == [MOST_EVENT_US + 1] and charged.meter.most_us == MOST_EVENT_US + 1


def test_work_that_an_event_wakes_is_part_of_it():
    found = []
    charged = turns(found)

    def work():
        charged.charge(MOST_EVENT_US)
        charged.later(lambda: charged.event(lambda: charged.charge(1)))

    charged.event(work)
    assert found == [MOST_EVENT_US + 1]


def test_a_run_whose_broker_charges_too_much_in_one_event_fails(monkeypatch):
    from ottla.broker.dispatch import Dispatcher

    start = Dispatcher.start

    def slow_start(self, *args):
        self._broker.turns.charge(2 * MOST_EVENT_US)
        return start(self, *args)

    monkeypatch.setattr(Dispatcher, "start", slow_start)
    world = World(1)
    world.run()
    assert any(line.startswith("held: ") for line in world.violations)
