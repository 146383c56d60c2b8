"""Planted bugs: functions of the broker that are replaced for a while, to see that a test notices. free

A replacement is set in the module or the class of the function, and in every loaded module that has imported the
function. A name that does not exist raises `Misplaced`, so that a plant always changes something.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import getattr_static
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ottla.broker.late_modules import import_all

import_all()  # a module that is imported later would keep the bug

Original = Callable[..., Any]
"""The function that a bug replaces."""


class Misplaced(Exception):
    """Raised when the owner of a replacement has no function of its name."""


class Replacement(NamedTuple):
    """A function of a module, or a method or a property of a class, and the bug that runs in its place.

    `bug` is called with the original function and the arguments of the call. It may be a generator function or a
    coroutine function, as the original may be.
    """

    owner: ModuleType | type
    name: str
    bug: Callable[..., Any]

    @property
    def is_compiled(self) -> bool:
        """Return whether the function is machine code, whose callers in its module do not notice a replacement."""
        module = self.owner if isinstance(self.owner, ModuleType) else sys.modules[self.owner.__module__]
        return not str(module.__file__).endswith(".py")

    @contextmanager
    def plant(self) -> Iterator[None]:
        """Replace the function, and restore it at the end."""
        owner, name = self.owner, self.name
        found = getattr_static(owner, name, None)
        function = found.fget if isinstance(found, property) else found
        if self.is_compiled:
            raise Misplaced(f"{owner.__name__} is compiled: a bug can be planted in plain Python only")
        if not isinstance(function, FunctionType):
            raise Misplaced(f"{owner.__name__} has no function {name}")
        changed: object = _with_bug(function, self.bug)
        if isinstance(found, property):
            changed = property(changed)  # type: ignore[arg-type]
        is_inherited = name not in vars(owner)
        holders = [(owner, name), *_importers(owner, function)]
        try:
            for holder, known_as in holders:
                setattr(holder, known_as, changed)
            yield
        finally:
            for holder, known_as in holders:
                setattr(holder, known_as, found)
            if is_inherited:
                delattr(owner, name)


class Plant:
    """A planted bug, a context manager that replaces functions and restores them at its end. `rule` describes it."""

    def __init__(self, rule: str, *replacements: Replacement) -> None:
        self.rule = rule
        self.replacements = replacements

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with ExitStack() as stack:
            for replacement in self.replacements:
                stack.enter_context(replacement.plant())
            yield


def _with_bug(function: FunctionType, bug: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run_bug(*arguments: Any, **named: Any) -> Any:
        return bug(function, *arguments, **named)

    return run_bug


def _importers(owner: ModuleType | type, function: FunctionType) -> list[tuple[ModuleType | type, str]]:
    """Return the other modules of the owner's package and of `lab` that have the function, with its name there."""
    packages = {_package_of(function.__module__), _package_of(__name__)}
    return [
        (module, name)
        for module_name, module in list(sys.modules.items())
        if module is not owner and _package_of(module_name) in packages
        for name, value in vars(module).items()
        if value is function
    ]


def _package_of(module_name: str) -> str:
    return module_name.partition(".")[0]
