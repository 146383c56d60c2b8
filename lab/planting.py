"""A bug on purpose: a piece of source that reads otherwise for a while, in the functions that are loaded. free

A function keeps its identity and gets the code that the changed module has for it, so whoever imported it before runs
the bug too. A place that is not found exactly once raises `Misplaced`: a plant that fits no more is never taken for a
rule that nobody tests.
"""

import ast
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple


class Misplaced(Exception):
    """Raised when the text that a plant replaces does not occur exactly once in its module, within a function."""


class Change(NamedTuple):
    """A replacement of `before` by `after` in a function of `module`, where `before` occurs exactly once."""

    module: ModuleType
    before: str
    after: str


class Plant:
    """A planted bug, a context manager that changes the code and restores it at its end. `rule` describes the bug."""

    def __init__(self, rule: str, *changes: Change) -> None:
        self.rule = rule
        self.changes = changes

    @contextmanager
    def __call__(self) -> Iterator[None]:
        planted = self._codes()
        known = [(function, function.__code__) for function, _code in planted]
        try:
            for function, code in planted:
                function.__code__ = code
            yield
        finally:
            for function, code in known:
                function.__code__ = code

    def _codes(self) -> list[tuple[FunctionType, CodeType]]:
        modules = dict.fromkeys(change.module for change in self.changes)
        return [
            pair
            for module in modules
            for pair in _codes(module, [change for change in self.changes if change.module is module])
        ]


def _codes(module: ModuleType, changes: Sequence[Change]) -> Iterator[tuple[FunctionType, CodeType]]:
    """Return the functions of a module that are changed, each with its code."""
    source = changed = inspect.getsource(module)
    names: dict[str, None] = {}
    for _, before, after in changes:
        if source.count(before) != 1:
            raise Misplaced(f"{module.__name__} has {source.count(before)} times, and not once: {before}")
        line = source.count("\n", 0, source.index(before)) + 1
        names[_function_around(source, line, module.__name__)] = None
        changed = changed.replace(before, after)
    compiled = compile(changed, module.__file__ or module.__name__, "exec", dont_inherit=True)
    for name in names:
        yield _loaded(module, name), _code_of(compiled, name)


def _function_around(source: str, line: int, where: str) -> str:
    """Return the qualified name of the outermost function around a line."""
    path: list[str] = []
    body: Sequence[ast.stmt] = ast.parse(source).body
    while True:
        around = [node for node in body if node.lineno <= line <= (node.end_lineno or node.lineno)]
        match around:
            case [ast.ClassDef(name=name, body=body)]:
                path.append(name)
            case [ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name)]:
                return ".".join([*path, name])
            case _:
                raise Misplaced(f"line {line} of {where} is in no function")


def _loaded(module: ModuleType, name: str) -> FunctionType:
    *classes, last = name.split(".")
    owner: object = module
    for each in classes:
        owner = getattr(owner, each)
    found = vars(owner)[last]
    while not isinstance(found, FunctionType):  # a property, or decorated
        found = found.fget if isinstance(found, property) else found.__wrapped__
    return found


def _code_of(compiled: CodeType, name: str) -> CodeType:
    """The code of the function of this qualified name, in that of a module."""
    waiting = [compiled]
    for code in waiting:
        if code.co_qualname == name:
            return code
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    raise Misplaced(f"{name} is gone with the change")
