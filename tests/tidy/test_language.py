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
    r"_*(?!test_|is_|has_|can_|was_|are_)\w*(ed|told|said|shown|held|lent|made_up|kept|taken|given)"
)
VERBS = re.compile(r"(need|feed|seed|speed|embed|proceed|exceed|shed)$")

LEFT = {
    "benchmarks": 19,
    "benchmarks/parts": 34,
    "docs": 2,
    "lab": 1,
    "lab/crash": 8,
    "lab/model": 15,
    "lab/simulation": 19,
    "ottla/audit": 10,
    "ottla/audit/checks": 10,
    "ottla/audit/report": 4,
    "ottla/broker": 24,
    "ottla/broker/admin": 25,
    "ottla/broker/api": 8,
    "ottla/broker/cluster": 4,
    "ottla/broker/config": 9,
    "ottla/broker/group": 19,
    "ottla/broker/quotas": 5,
    "ottla/broker/security": 6,
    "ottla/broker/txn": 5,
    "ottla/cli": 3,
    "ottla/cli/acl": 1,
    "ottla/cli/dump": 3,
    "ottla/cli/inspect": 1,
    "ottla/cli/repair": 3,
    "ottla/cli/top": 5,
    "ottla/cli/txn": 1,
    "ottla/client": 3,
    "ottla/scan": 5,
    "ottla/spark_jobs": 10,
    "ottla/spark_jobs/cache": 6,
    "ottla/spark_jobs/stream": 1,
    "ottla/spark_jobs/views": 8,
    "ottla/testkit": 2,
    "ottla/testkit/checks": 4,
    "ottla/testkit/control": 7,
    "ottla/testkit/corpus": 7,
    "ottla/testkit/faults": 2,
    "ottla/testkit/history": 3,
    "ottla/testkit/in_memory": 3,
    "ottla/testkit/kit": 10,
    "ottla/testkit/proxying": 9,
    "tests": 7,
    "tests/api": 30,
    "tests/audit": 24,
    "tests/authorization": 28,
    "tests/browser": 9,
    "tests/conformance": 59,
    "tests/crash": 2,
    "tests/fuzz_surface": 4,
    "tests/mutants": 5,
    "tests/scan": 18,
    "tests/sim": 8,
    "tests/spark": 14,
    "tests/tables": 23,
    "tests/tidy": 3,
    "tests/unit": 136,
    "tests/wire": 52,
}
"""Places that still break a rule, by folder. A folder that is not named has none, and no number may grow."""


def folder_of(path):
    """`ottla/broker/log` for each of its files, `tests/wire` for all below it."""
    parents = relative(path).split("/")[:-1]
    return "/".join(parents[: 3 if parents[:1] == ["ottla"] else 2])


def places(path):
    """(line, text) for each docstring and function of a file that breaks a rule."""
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        doc = ast.get_docstring(node)
        sentence = " ".join(doc.split())[:110] if doc else ""
        line = getattr(node, "lineno", 1)
        if FIRST_WORDS.match(sentence):
            yield line, f"begin with a verb or a noun: {sentence}"
        elif riddle := RIDDLES.search(sentence):
            yield line, f"say it without “{riddle[0]}”: {sentence}"
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_participle(node):
            yield line, f"name the function by a verb: {node.name}"


def is_participle(node):
    is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    return not is_property and bool(PARTICIPLES.fullmatch(node.name)) and not VERBS.search(node.name)


def test_language():
    found = defaultdict(list)
    for path in python_files(*FOLDERS):
        found[folder_of(path)].extend(f"{relative(path)}:{line}: {text}" for line, text in places(path))
    counts = {folder: len(lines) for folder, lines in found.items() if lines}
    grown = [folder for folder, count in counts.items() if count > LEFT.get(folder, 0)]
    shrunk = [folder for folder, count in LEFT.items() if count > counts.get(folder, 0)]
    faults(line for folder in grown for line in found[folder])
    faults(f"{folder}: {counts.get(folder, 0)} places are left; lower its number in LEFT" for folder in shrunk)
