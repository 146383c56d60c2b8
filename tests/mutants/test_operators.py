"""Each mutant is one observable change, and a seed always draws the same mutants."""

import ast
from pathlib import Path

import pytest

from tests.mutants.__main__ import draw
from tests.mutants.nearby import ROOMS, stages
from tests.mutants.operators import mutants_of

SOURCE = '''"""Words."""
import logging
MOST_BYTES: Final = 5

def f(self, a: int = 1) -> bool:
    """More words."""
    log.info("é %d", 1 + 1)
    self.charged_us += 3
    yield 2 * ROW_US
    if not a and self.b <= 2:
        self.c = min(a, 3)
        return a < 1
    g(True)
    return [a - 1] if a else None
'''.encode()


def changes(source):
    return {(one.operator, one.before, one.after) for one in mutants_of("m.py", source)}


def test_each_is_one_change_of_one_place():
    for one in mutants_of("m.py", SOURCE):
        changed = one.apply(SOURCE)
        ast.parse(changed)
        assert changed != SOURCE and len(changed) - len(SOURCE) == len(one.after.encode()) - len(one.before.encode())
        assert one.line == 1 + SOURCE[: one.start].count(b"\n")


def test_every_kind_of_change_is_there():
    assert changes(SOURCE) >= {
        ("constant", "1", "2"),
        ("constant", "True", "False"),
        ("condition", "not a and self.b <= 2", "False"),
        ("boolean", "not a and self.b <= 2", "(not a) or (self.b <= 2)"),
        ("boolean", "not a and self.b <= 2", "(not a)"),
        ("boolean", "not a", "(a)"),
        ("comparison", "self.b <= 2", "(self.b) < (2)"),
        ("call", "min", "max"),
        ("statement", "self.c = min(a, 3)", "pass"),
        ("statement", "g(True)", "pass"),
        ("return", "a < 1", "not (a < 1)"),
        ("return", "[a - 1] if a else None", "None"),
        ("arithmetic", "a - 1", "(a) + (1)"),
        ("condition", "a", "not (a)"),
    }


def test_unobservable_lines_are_not_mutated():
    told = [one for one in mutants_of("m.py", SOURCE) if one.line in (1, 2, 3, 6, 7, 8, 9)]
    assert told == []


def test_zip_strict_is_not_mutated():
    assert {before for _, before, _ in changes(b"f(zip(a, b, strict=True), True)")} == {
        "f(zip(a, b, strict=True), True)",
        "True",
    }
    assert sum(one.before == "True" for one in mutants_of("m.py", b"f(zip(a, b, strict=True), True)")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("count", [12, 31])
def test_a_seed_draws_the_same_mutants_in_the_requested_number(count):
    drawn = draw(3, count, ("ottla/broker/api/fetch.py", "ottla/broker/api/produce.py"))
    assert len(drawn) == count and drawn == draw(3, count, ("ottla/broker/api/fetch.py", "ottla/broker/api/produce.py"))
    assert {one.path for one in drawn} == {"ottla/broker/api/fetch.py", "ottla/broker/api/produce.py"}


def test_every_source_folder_has_tests_and_namesakes_run_first():
    for room in ROOMS:
        assert Path(room.source).is_dir() and all(Path(folder).is_dir() for folder in (*room.tests, *room.wider))
    first, *others = stages("ottla/broker/api/fetch.py")
    assert (
        first == ["tests/api/test_fetch.py", "tests/api/test_fetch_sessions.py"]
        and "tests/api/test_produce.py" in others[0]
    )
