"""Planted bugs replace functions and restore them. A plant whose function does not exist raises an error."""

import asyncio
import importlib
import sys
from inspect import getattr_static

import pytest

from lab.crash.plants import PLANTS as CRASH
from lab.planting import Misplaced, Plant, Replacement
from lab.simulation.plants import PLANTS as SIMULATION

PLAIN = """
LIMIT = 3

def plain(value):
    return value + 1

def steps(value):
    yield value
    return value

async def later(value):
    return value

class Thing:
    def method(self, value):
        return value + LIMIT

    @property
    def size(self):
        return LIMIT

class Child(Thing):
    pass
"""
IMPORTER = """
from planted_package.plain import Thing, plain
from planted_package.plain import plain as other_name

def call(value):
    return plain(value), other_name(value)
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Return a module with functions of each kind, and a module that has imported one of them."""
    package = tmp_path / "planted_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plain.py").write_text(PLAIN)
    (package / "importer.py").write_text(IMPORTER)
    monkeypatch.syspath_prepend(tmp_path)
    yield tuple(importlib.import_module(f"planted_package.{name}") for name in ("plain", "importer"))
    for name in [each for each in sys.modules if each.partition(".")[0] == "planted_package"]:
        del sys.modules[name]


def negate(original, *arguments):
    return -original(*arguments)


def test_a_module_that_imported_the_function_runs_the_bug_until_it_ends(modules):
    plain, importer = modules
    bug = Plant("", Replacement(plain, "plain", negate))
    for _ in range(2):
        with bug():
            assert (plain.plain(5), importer.call(5)) == (-6, (-6, -6))
        assert (plain.plain(5), importer.call(5)) == (6, (6, 6))


def test_methods_and_properties_are_replaced_for_objects_that_exist(modules):
    plain, importer = modules
    thing = importer.Thing()
    with Plant("", Replacement(plain.Thing, "method", negate), Replacement(plain.Thing, "size", negate))():
        assert (thing.method(5), thing.size) == (-8, -3)
    assert (thing.method(5), thing.size) == (8, 3)


def test_an_inherited_method_is_replaced_in_the_class_alone(modules):
    plain, _importer = modules
    with Plant("", Replacement(plain.Child, "method", negate))():
        assert (plain.Child().method(5), plain.Thing().method(5)) == (-8, 8)
    assert "method" not in vars(plain.Child)


def test_generator_functions_and_coroutine_functions_are_replaced(modules):
    def steps_twice(steps, value):
        yield from steps(value)
        return (yield from steps(value))

    async def negate_later(later, value):
        return -(await later(value))

    plain, _importer = modules
    with Plant("", Replacement(plain, "steps", steps_twice), Replacement(plain, "later", negate_later))():
        assert list(plain.steps(5)) == [5, 5]
        assert asyncio.run(plain.later(5)) == -5
    assert list(plain.steps(5)) == [5]
    assert asyncio.run(plain.later(5)) == 5


def test_two_bugs_of_one_function_run_one_around_the_other(modules):
    def double(original, *arguments):
        return 2 * original(*arguments)

    plain, importer = modules
    with Plant("", Replacement(plain, "plain", negate), Replacement(plain, "plain", double))():
        assert importer.call(5) == (-12, -12)
    assert importer.call(5) == (6, 6)


def test_a_function_is_restored_after_a_run_that_failed(modules):
    plain, importer = modules
    with pytest.raises(KeyError), Plant("", Replacement(plain, "plain", negate))():
        raise KeyError
    assert importer.call(5) == (6, 6)


@pytest.mark.parametrize("name", ["no_such_function", "LIMIT", "Thing"])
def test_a_name_that_is_no_function_is_refused_and_nothing_stays_replaced(modules, name):
    plain, importer = modules
    with (
        pytest.raises(Misplaced, match=name),
        Plant("", Replacement(plain, "plain", negate), Replacement(plain, name, negate))(),
    ):
        pytest.fail("the bug was planted")
    assert importer.call(5) == (6, 6)


def test_a_method_that_does_not_exist_is_refused(modules):
    plain, _importer = modules
    with (
        pytest.raises(Misplaced, match="Thing has no function gone"),
        Plant("", Replacement(plain.Thing, "gone", negate))(),
    ):
        pytest.fail("the bug was planted")


BUGS = {f"simulation: {name}": bug for name, bug in SIMULATION.items()}
BUGS |= {f"crash: {name}": hunted.bug for name, hunted in CRASH.items()}


@pytest.mark.parametrize("name", BUGS)
def test_every_plant_replaces_its_functions_and_restores_them(name):
    bug = BUGS[name]
    places = [(each.owner, each.name) for each in bug.replacements]
    sound = [getattr_static(*place) for place in places]
    with bug():
        planted = [getattr_static(*place) for place in places]
    assert planted
    assert all(now is not before for now, before in zip(planted, sound, strict=True))
    assert [getattr_static(*place) for place in places] == sound
    assert bug.rule.endswith(".")
