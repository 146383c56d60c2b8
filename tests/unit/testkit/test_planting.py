"""Planted bugs change the running code and restore it. A plant that no longer fits the code raises an error."""

import sys
from types import ModuleType

import pytest

from lab.crash.plants import PLANTS as CRASH
from lab.planting import Change, Misplaced, Plant
from lab.simulation.plants import PLANTS as SIMULATION

SOURCE = """
from functools import lru_cache

LIMIT = 3

def plain(value):
    return [each for each in (value,) if each < LIMIT]

class Thing:
    def method(self, value):
        return value + LIMIT

    @property
    def size(self):
        return LIMIT

@lru_cache
def cached(value):
    return -value

async def later(value):
    return value
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "planted_module.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted_module", raising=False)
    import planted_module

    yield planted_module
    sys.modules.pop("planted_module")


def test_who_holds_the_function_runs_the_bug_until_it_ends(module):
    plain, method = module.plain, module.Thing().method
    bug = Plant(
        "",
        Change(module, "each < LIMIT", "each > LIMIT"),
        Change(module, "value + LIMIT", "value"),
        Change(module, "        return LIMIT", "        return 9"),
        Change(module, "return -value", "return 0"),
    )
    for _ in range(2):
        with bug():
            assert (plain(5), method(5), module.Thing().size, module.cached(8)) == ([5], 5, 9, 0)
            module.cached.cache_clear()
        assert (plain(5), method(5), module.Thing().size, module.cached(8)) == ([], 8, 3, -8)
        module.cached.cache_clear()


def test_the_code_comes_back_when_what_ran_with_the_bug_failed(module):
    with pytest.raises(KeyError), Plant("", Change(module, "value + LIMIT", "value"))():
        raise KeyError
    assert module.Thing().method(5) == 8


@pytest.mark.parametrize(
    "change",
    [
        ("no such line", "pass"),
        ("LIMIT", "4"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("def plain(value)", "def other(value)"),
    ],
)
def test_what_fits_no_more_plants_nothing(module, change):
    with pytest.raises(Misplaced), Plant("", Change(module, "value + LIMIT", "value"), Change(module, *change))():
        pass
    assert module.Thing().method(5) == 8


BUGS = {
    f"{part}: {name}": bug
    for part, bugs in (("simulation", SIMULATION),)
    for name, bug in bugs.items()
}
BUGS |= {f"crash: {name}": hunted.bug for name, hunted in CRASH.items()}


@pytest.mark.parametrize("name", BUGS)
def test_every_plant_has_its_place_and_changes_the_code_there(name):
    modules = [change.module for change in BUGS[name].changes]
    sound = codes(modules)
    with BUGS[name]():
        assert codes(modules) != sound
    assert codes(modules) == sound
    assert BUGS[name].rule.endswith(".")


def codes(modules: list[ModuleType]):
    """Return the code of every function of these modules and of their classes."""
    found = []
    for module in modules:
        owners = [module, *(each for each in vars(module).values() if isinstance(each, type))]
        found += [
            vars(owner)[name].__code__
            for owner in owners
            for name in vars(owner)
            if hasattr(vars(owner)[name], "__code__")
        ]
    return found
