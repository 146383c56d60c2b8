"""Remove the faults, clients and steps of a failing seed that the failure does not need. pure"""

from typing import Any, NamedTuple

from lab.simulation.faults import Profile
from lab.simulation.outcome import Outcome, run_seed


class Shrunk(NamedTuple):
    """The smallest run found that fails in the same way, and its options."""

    outcome: Outcome
    dropped: list[int]
    clients: list[str]
    steps: int

    def command(self, profile: str | None) -> str:
        """Return the command that runs it again."""
        words = [f"python -m lab.simulate --seed {self.outcome.seed} --steps {self.steps}"]
        if profile is not None:
            words.append(f"--profile {profile}")
        if self.dropped:
            words.append(f"--drop {','.join(map(str, self.dropped))}")
        return " ".join([*words, f"--clients {','.join(self.clients)}"])


def shrink(failing: Outcome, profile: Profile | None = None) -> Shrunk:
    """Leave out one fault or client after the other while the failure stays the same. Then search the fewest steps."""
    seed, signature = failing.seed, failing.signature
    dropped: list[int] = []
    clients = list(failing.clients)
    best = failing

    def fails(**options: Any) -> Outcome | None:
        outcome = run_seed(seed, profile, **options)
        return outcome if outcome.signature == signature else None

    changed = True
    while changed:
        changed = False
        for index in range(len(failing.plan)):
            if index not in dropped:
                smaller = fails(dropped=[*dropped, index], clients=clients)
                if smaller is not None:
                    best, changed = smaller, True
                    dropped.append(index)
        for name in list(clients):
            fewer = [each for each in clients if each != name]
            smaller = fails(dropped=dropped, clients=fewer) if fewer else None
            if smaller is not None:
                best, clients, changed = smaller, fewer, True
    steps = _fewest_steps(best, lambda most: fails(dropped=dropped, clients=clients, steps=most))
    return Shrunk(steps[0], sorted(dropped), clients, steps[1])


def _fewest_steps(best: Outcome, fails: Any) -> tuple[Outcome, int]:
    """Bisect the number of steps, to 1/64 of the run or one step. Return the smallest failing outcome and its steps."""
    least, most = 0, best.steps
    while most - least > max(1, best.steps // 64):
        middle = (least + most) // 2
        outcome = fails(middle)
        if outcome is None:
            least = middle
        else:
            best, most = outcome, middle
    return best, most
