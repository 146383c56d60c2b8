"""A trial of a mutant in a copy of the tree, with the tests that run against it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.operators import Mutant

FOUND: Final = "found"
SURVIVED: Final = "survived"
BROKEN: Final = "broken"
"""The tests also fail without the mutant, so they show nothing about it."""
COLUMNS = ("outcome", "place", "operator", "before", "after", "by")
MOST_SHOWN: Final = 70
PASSED, NO_TESTS = 0, 5
PYTEST = ("-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0")


class Trial(NamedTuple):
    """Outcome of a mutant; `by` is the test that failed."""

    mutant: Mutant
    outcome: str
    by: str

    def row(self) -> tuple[str, ...]:
        mutant = self.mutant
        texts = (" ".join(text.split())[:MOST_SHOWN] for text in (mutant.before, mutant.after))
        return self.outcome, f"{mutant.path}:{mutant.line}", mutant.operator, *texts, self.by


class Tree:
    """A copy of the tree at `root`, one mutant at a time."""

    def __init__(self, root: Path, timeout_s: float) -> None:
        self._root = root
        self._timeout_s = timeout_s
        self._sound: dict[tuple[str, ...], bool] = {}

    def try_mutant(self, mutant: Mutant, stages: list[list[str]]) -> Trial:
        """Run one stage after the other, until something fails."""
        path = self._root / mutant.path
        source = path.read_bytes()
        for tests in stages:
            path.write_bytes(mutant.apply(source))
            try:
                failed = self._find_failure(tests)
            finally:
                path.write_bytes(source)
            if failed is not None:
                return Trial(mutant, FOUND if self._is_sound(tests) else BROKEN, failed)
        return Trial(mutant, SURVIVED, "")

    def _is_sound(self, tests: list[str]) -> bool:
        """Return whether the tests pass without a mutant."""
        key = tuple(tests)
        if key not in self._sound:
            self._sound[key] = self._find_failure(tests) is None
        return self._sound[key]

    def _find_failure(self, tests: list[str]) -> str | None:
        """Return the first test that fails, or the reason why none could run; None if all pass."""
        own = {"PYTHONPATH": str(self._root), "PYTHONDONTWRITEBYTECODE": "1", "OTTLA_FAST": "1"}
        run = subprocess.Popen(
            [sys.executable, *PYTEST, f"--basetemp={self._root.with_name(f'{self._root.name}-tmp')}", *tests],
            cwd=self._root,
            env=os.environ | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = run.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            return f"no end within {self._timeout_s:g} s"
        if run.returncode in (PASSED, NO_TESTS):
            return None
        told = [line for line in output.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))]
        return told[0].split(" - ")[0] if told else f"pytest ended with {run.returncode}"
