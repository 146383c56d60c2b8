"""Docstrings begin with a verb or a noun, functions are verbs, and riddles stay out, folder by folder."""

import ast
import re
from collections import defaultdict

from tests.tidy.test_tidy import FOLDERS, faults, python_files, relative, tree_of

FIRST_WORDS = re.compile(
    r"(what|whatever|who|whose|whom|whoever|how|which|when|where|nobody|somebody|it|one|that|those|of)\b", re.IGNORECASE
)
RIDDLES = re.compile(
    r"\b(tells?|told|whoever|nobody|somebody|anew|beside|seldom|strangers?|hires?|haunts?|ghosts?|weather|temper|desks?"
    r"|owed|lend|lent|says? so|goes home|last words|for good|out of sight)\b",
    re.IGNORECASE,
)
PARTICIPLES = re.compile(
    r"_*+(?!test_|is_|has_|can_|was_|are_)\w*(ed|told|said|shown|held|lent|made_up|kept|taken|given)"
)
VERBS = re.compile(r"(^|_)(need|feed|seed|speed|embed|proceed|exceed|shed)$")
TEST_NAMES = re.compile(
    r"test_((who|what|whose|whom|how|which|where|whoever|nobody|somebody|it|its|that|those|neither|nothing|everybody)_"
    r"|(\w+_)?(tells?|told|nobody|somebody|everybody|whoever|whatever|anew|beside|behind|stands?|heard|hears?|strangers?"
    r"|haunts?|owed|lent|lends?|seldom|says?|said|promis\w*)(_|$))"
)
CALLBACKS = {"buffer_updated", "data_received", "eof_received"}  # of asyncio
CALLBACKS |= {"on_partitions_assigned", "on_partitions_revoked"}  # of aiokafka

DEFINITIONS = 4
"""A package has at most this many functions and classes of one name, if the name is no interface."""
INTERFACES = {
    "bootstrap": "the addresses that clients connect to",
    "findings": "the findings of a check, from each module of `audit/checks`",
    "handle": "the handler of an API, from each module of `broker/api`",
    "rows_or_batches": "the content of a view",
    "stop": "the end of a part of the broker",
}
"""Names that many modules or classes define because they are used in the same way."""

LEFT = {
    "benchmarks": 1,
    "lab/crash": 1,
    "lab/simulation": 2,
    "ottla/broker/api": 1,
    "ottla/broker/cluster": 1,
    "ottla/client": 1,
    "ottla/scan": 1,
    "ottla/spark_jobs/cache": 4,
    "ottla/testkit": 1,
    "ottla/testkit/faults": 1,
    "ottla/testkit/in_memory": 1,
    "ottla/testkit/kit": 7,
    "tests/conformance": 5,
    "tests/unit": 2,
}
"""Places that still break a rule, by folder. A folder that is not named has none, and no number may grow."""


def folder_of(path):
    """`ottla/broker/log` for each of its files, `tests/wire` for all below it."""
    parents = relative(path).split("/")[:-1]
    return "/".join(parents[: 3 if parents[:1] == ["ottla"] else 2])


def statements(node):
    """Yield `node` and the statements below it: nine of ten nodes are expressions, which define nothing."""
    yield node
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            yield from statements(child)


def places(path):
    """(line, text) for each docstring and function of a file that breaks a rule."""
    for node in statements(tree_of(path)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        doc = ast.get_docstring(node)
        sentence = " ".join(doc.split())[:110] if doc else ""
        line = getattr(node, "lineno", 1)
        if FIRST_WORDS.match(sentence):
            yield line, f"begin with a verb or a noun: {sentence}"
        elif riddle := RIDDLES.search(sentence):
            yield line, f"say it without “{riddle[0]}”: {sentence}"
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if is_participle(node):
                yield line, f"name the function by a verb: {node.name}"
            if TEST_NAMES.match(node.name):
                yield line, f"name the test by the behaviour that it asserts: {node.name}"


def is_participle(node):
    is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    if is_property or node.name in CALLBACKS or VERBS.search(node.name):
        return False
    return PARTICIPLES.fullmatch(node.name) is not None


def test_language():
    found = defaultdict(list)
    for path in python_files(*FOLDERS):
        found[folder_of(path)].extend(f"{relative(path)}:{line}: {text}" for line, text in places(path))
    counts = {folder: len(lines) for folder, lines in found.items() if lines}
    grown = [folder for folder, count in counts.items() if count > LEFT.get(folder, 0)]
    shrunk = [folder for folder, count in LEFT.items() if count > counts.get(folder, 0)]
    faults(line for folder in grown for line in found[folder])
    faults(f"{folder}: {counts.get(folder, 0)} places are left; lower its number in LEFT" for folder in shrunk)


def definitions(path):
    """(name, line, whether a protocol or an abstract class declares it) for each function and class of a module."""
    for node in tree_of(path).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not is_repeated(node):
            yield node.name, node.lineno, False
        if isinstance(node, ast.ClassDef):
            is_protocol = any("Protocol" in ast.unparse(base) for base in node.bases)
            for method in node.body:
                if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_repeated(method):
                    yield method.name, method.lineno, is_protocol or has_decorator(method, "abstractmethod")


def is_repeated(node):
    return has_decorator(node, "overload") or has_decorator(node, "setter")


def has_decorator(node, name):
    return any(name in ast.unparse(decorator) for decorator in node.decorator_list)


def test_a_name_has_few_definitions_in_a_package():
    """A search for a name finds its definition. Names that a protocol or an abstract class declares may be repeated."""
    found, declared = defaultdict(list), {"__init__"} | INTERFACES.keys()
    for path in python_files("ottla"):
        for name, line, is_declared in definitions(path):
            found[relative(path).split("/")[1], name].append(f"{relative(path)}:{line}")
            if is_declared or (name.startswith("__") and name.endswith("__")):
                declared.add(name)
    faults(
        f"{name} has {len(places)} definitions in ottla/{package}: {', '.join(places)}"
        for (package, name), places in found.items()
        if len(places) > DEFINITIONS and name not in declared
    )
