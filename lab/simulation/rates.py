"""Measure the share of seeds that detect each planted bug, in the profile made for its rule. free

    python -m lab.simulation.rates FILE [PLANT ...]

measures the named plants (without names: all), writes the rates to FILE (JSON; other plants in it stay) and prints the
table of docs/simulation.md. Each plant runs until it has 8 hits and 40 seeds, at most for 2,000 seeds.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lab.simulation.faults import PROFILES
from lab.simulation.outcome import run_seed
from lab.simulation.plants import PLANTS

MOST_SEEDS: Final = 2000
LEAST_SEEDS: Final = 40
CLEAR: Final = 8
"""The number of hits that ends the measurement of a plant."""
FIRST: Final = 3
"""The number of detecting seeds that FILE lists."""

MEASURED: Final[dict[str, tuple[str, int | None]]] = {
    "epochs-unchecked": ("mixed", None),
    "append-epoch-unchecked": ("unverified", 2),
    "unverified": ("stale", 1),
    "markers-before-prepare": ("crash", None),
    "duplicates-appended": ("pipelined", None),
    "gaps-accepted": ("pipelined", None),
    "reuse-acknowledged": ("reuse", None),
    "pending-ignored": ("pending-overlap", None),
    "prepare-forgotten": ("crash", None),
    "open-forgotten": ("crash", None),
    "init-does-not-fence": ("mixed", None),
    "markers-once": ("late-markers", None),
    "marker-epochs-unchecked": ("lossy-markers", None),
    "unstable-visible": ("mixed", None),
    "offsets-never-settle": ("mixed", None),
    "aborted-list-empty": ("mixed", None),
    "guard-missing": ("stale", 1),
    "overtaking-accepted": ("late-markers", 2),
    "duplicate-early": ("retry-during-sync", None),
    "answered-early": ("pending-overlap", None),
    "abort-does-not-fence": ("crash", 1),
    "end-keeps-epoch": ("stale", 2),
    "empty-abort-keeps-epoch": ("stale", 2),
    "repeated-end-refused": ("stale", 2),
    "retry-unrecognised": ("pending-overlap", 2),
    "equal-marker-accepted": ("lossy-markers", 2),
    "join-skipped": ("stale", 2),
    "exhausted-id-kept": ("exhaustion", None),
    "markers-compacted-early": ("compaction", None),
    "cleaner-ignores-aborts": ("compaction", None),
    "open-transactions-compacted": ("compaction", None),
    "assigned-before-revoked": ("consumer-groups", None),
    "revocation-not-awaited": ("consumer-groups", None),
    "heartbeat-answered-early": ("consumer-groups-power", None),
    "group-epoch-goes-back": ("consumer-groups", None),
    "session-never-ends": ("consumer-groups", None),
    "session-under-old-id": ("consumer-groups", None),
    "target-not-logged": ("consumer-groups", None),
    "stale-commit-accepted": ("consumer-groups", None),
    "member-tombstone-lost": ("consumer-groups", None),
    "upgrade-forgets-assignment": ("consumer-groups-migration", None),
    "upgrade-in-earlier-epoch": ("consumer-groups-migration", None),
    "upgrade-without-sessions": ("consumer-groups-migration", None),
    "classic-never-joins-again": ("consumer-groups-migration", None),
    "downgrade-exchanges-assignments": ("consumer-groups-migration", None),
    "downgrade-in-earlier-generation": ("consumer-groups-migration", None),
    "downgrade-without-rebalance": ("consumer-groups-migration", None),
    "past-generation-accepted": ("consumer-groups-migration", None),
    "matches-kept": ("consumer-groups-migration", None),
    "coordinator-does-not-resign": ("moves", None),
    "applied-after-move": ("moves-crash", None),
    "undurable-loaded": ("moves-crash", None),
    "stale-load-kept": ("moves-crash", None),
    "leader-unchecked": ("moves-crash", None),
    "fetches-stay-parked": ("moves", None),
    "former-marker-accepted": ("moves", 1),
    "late-refusal-ignored": ("moves-crash", None),
    "block-without-version": ("blocks", None),
    "lost-block-used": ("blocks", None),
    "equal-block-accepted": ("blocks", None),
    "block-below-log": ("blocks", None),
    "id-before-durable": ("blocks", None),
}
"""The profile made for each plant's rule, and the `transaction.version` if it matters (None: that of the seed)."""

CRASHES: Final = frozenset({"exhausted-id-kept"})
"""Plants that make the broker fail, because epoch 32,768 does not exist."""


def measure(plant: str) -> dict[str, Any]:
    """Run seeds with one plant and return its rate."""
    name, level = MEASURED[plant]
    kinds: Counter[str] = Counter()
    hits: list[int] = []
    tried = 0
    with PLANTS[plant]():
        while tried < LEAST_SEEDS or (tried < MOST_SEEDS and len(hits) < CLEAR):
            outcome = run_seed(tried, PROFILES[name], level=level)
            problems = real_problems(plant, outcome.problems)
            if problems:
                hits.append(tried)
                kinds[_kind(problems[0])] += 1
            tried += 1
    return {
        "profile": name,
        "level": level,
        "seeds": tried,
        "caught": len(hits),
        "first": hits[:FIRST],
        "noticed": [kind for kind, _count in kinds.most_common(3)],
    }


def real_problems(plant: str, problems: Sequence[str]) -> list[str]:
    """Return the problems without exceptions: they show that a plant or the simulation no longer fits the broker."""
    failures = () if plant in CRASHES else ("error log", "bug")
    return [each for each in problems if not each.startswith((*failures, "simulation broke"))]


def row(plant: str, rate: dict[str, Any]) -> str:
    """Return the line of a plant in the table."""
    where = rate["profile"] if rate["level"] is None else f"{rate['profile']}, level {rate['level']}"
    share = f"{100 * rate['caught'] / rate['seeds']:.1f} %"
    first = rate["first"][0] if rate["first"] else "-"
    noticed = ", ".join(rate["noticed"])
    return f"| `{plant}` | {where} | {rate['caught']} of {rate['seeds']} | {share} | {first} | {noticed} |"


def _kind(problem: str) -> str:
    """Return an anomaly's name, or the first words of an invariant's message."""
    name, _, rest = problem.partition(": ")
    if " " not in name and name[-1:].isdigit():  # of a partition
        return " ".join(rest.split()[:3])
    words = name.split()
    return name if len(words) < 4 else " ".join(word for word in words if not word[-1].isdigit())


def main(arguments: Sequence[str]) -> int:
    path, names = Path(arguments[0]), arguments[1:] or list(PLANTS)
    rates = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for plant in names:
        rates[plant] = measure(plant)
        sys.stdout.write(f"{row(plant, rates[plant])}\n")
        sys.stdout.flush()
        known = {each: rates[each] for each in PLANTS if each in rates}
        path.write_text(f"{json.dumps(known, indent=1)}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
