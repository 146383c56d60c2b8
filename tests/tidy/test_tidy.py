"""The hard ends of the house rules that no linter knows, over every file of the project."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from hatch_build import ENGINE

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ottla", "lab", "tests", "benchmarks", "docs", ".ci")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yml", ".yaml", ".sh", ".java", ".xml", ""}

FILE_LINES = 500
FUNCTION_LINES = 70
FOLDER_MODULES = 30

KINDS = {"pure", "shell", "frozen", "free"}
IMPURE_IMPORTS = {"asyncio", "os", "random", "time"}
SHELVES = {"util", "utils", "helper", "helpers", "misc", "common"}

# In the broker, time, files and the event loop are reached in these places alone, so that a simulation can own them.
PORTS_ONLY_IMPORTS = {
    "asyncio",
    "os",
    "pathlib",
    "random",
    "shutil",
    "socket",
    "tempfile",
    "threading",
    "time",
    "uvloop",
}
PORTS_ONLY_CALLS = {"open", "call_later", "call_at", "call_soon"}
OUTSIDE_THE_CORE = (
    "ottla/broker/ports/",
    "ottla/broker/connection.py",
    "ottla/broker/server.py",
    "ottla/admin/serving.py",
)

# Written in two parts so that this file passes its own test.
MACHINE_PATHS = re.compile("|".join("/" + name for name in ("home/", "root/", "work/", "Users/")))


def relative(path):
    return path.relative_to(ROOT).as_posix()


def python_files(*folders):
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return found + ([ROOT / "pyspark_ottla.py"] if folders == FOLDERS and (ROOT / "pyspark_ottla.py").exists() else [])


def text_files():
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "data" not in path.parts]
    loose = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    return sorted(p for p in inside + loose if p.is_file() and p.suffix in TEXT_SUFFIXES and p.name != "LICENSE")


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path):
    """The modules that a file imports, with every name of a `from` import as a possible submodule."""
    package = [*path.relative_to(ROOT).with_suffix("").parts][:-1]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield module
            for name in node.names:
                yield f"{module}.{name.name}"


def roots_of_imports(path):
    return {name.split(".")[0] for name in imports_of(path)}


def kinds_of(path):
    """The words from KINDS at the end of the first docstring line."""
    doc = ast.get_docstring(tree_of(path))
    words = doc.splitlines()[0].split() if doc else []
    kinds = set()
    while words and words[-1] in KINDS:
        kinds.add(words.pop())
    return kinds


def is_only_a_docstring(path):
    return all(isinstance(node, (ast.Expr, ast.Assign)) for node in tree_of(path).body)


def faults(found):
    """Fail with one line per fault."""
    lines = sorted(set(found))
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def test_no_file_is_longer_than_500_lines():
    lengths = ((path, len(path.read_text(encoding="utf-8").splitlines())) for path in python_files(*FOLDERS))
    faults(f"{relative(path)}: {lines} lines" for path, lines in lengths if lines > FILE_LINES)


def test_no_function_is_longer_than_70_lines():
    def long_ones():
        for path in python_files(*FOLDERS):
            for node in ast.walk(tree_of(path)):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    lines = node.end_lineno - node.lineno + 1
                    if lines > FUNCTION_LINES:
                        yield f"{relative(path)}:{node.lineno}: {node.name} has {lines} lines"

    faults(long_ones())


def test_no_folder_has_more_than_30_modules():
    """Only `broker/api` has more: a module for each API."""
    modules = Counter(relative(path.parent) for path in python_files("ottla", "lab") if path.name != "__init__.py")
    del modules["ottla/broker/api"]
    faults(f"{folder}: {count} modules" for folder, count in modules.items() if count > FOLDER_MODULES)


def test_every_module_docstring_names_its_kind():
    def find_heads():
        for path in python_files("ottla", "lab"):
            if path.name == "__init__.py" and is_only_a_docstring(path):
                continue
            if not kinds_of(path):
                yield f"{relative(path)}: the first docstring line must end with one of {sorted(KINDS)}"

    faults(find_heads())


def test_pure_modules_import_no_clock_no_files_no_loop_no_chance():
    faults(
        f"{relative(path)}: pure, but imports {name}"
        for path in python_files("ottla", "lab")
        if "pure" in kinds_of(path)
        for name in roots_of_imports(path) & IMPURE_IMPORTS
    )


def core_files():
    return [
        path for path in python_files("ottla/broker", "ottla/admin") if not relative(path).startswith(OUTSIDE_THE_CORE)
    ]


def test_in_the_broker_time_files_and_loop_are_imported_by_the_ports_alone():
    faults(
        f"{relative(path)}: imports {name}; use a port"
        for path in core_files()
        for name in roots_of_imports(path) & PORTS_ONLY_IMPORTS
    )


def test_in_the_broker_files_and_timers_are_called_by_the_ports_alone():
    def find_calls():
        for path in core_files():
            for node in ast.walk(tree_of(path)):
                # A method named `open` or a timer port's own `call_later` is a call on a port; the builtin is not.
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PORTS_ONLY_CALLS:
                    yield f"{relative(path)}:{node.lineno}: calls {node.func.id}; use a port"
                if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(
                    ("loop.", "self.loop.", "self._loop.")
                ):
                    yield f"{relative(path)}:{node.lineno}: calls {ast.unparse(node.func)}; use a port"

    faults(find_calls())


def test_a_handler_of_the_broker_does_no_work_in_a_finally():
    """A discarded handler would do that work as well: see the rules of `turns.py`."""

    def working():
        for path in core_files():
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.AsyncFunctionDef):
                    for part in ast.walk(node):
                        if isinstance(part, ast.Try) and part.finalbody:
                            yield f"{relative(path)}:{part.finalbody[0].lineno}: {node.name} works in a finally"

    faults(working())


def test_the_library_does_not_print():
    library = python_files("ottla/protocol", "ottla/broker", "ottla/admin", "ottla/client")
    faults(
        f"{relative(path)}:{node.lineno}: prints"
        for path in library
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    )


def test_the_second_scanner_shares_only_decompression_with_what_it_checks():
    faults(
        f"{relative(path)}: imports {name}"
        for path in python_files("ottla/testkit")
        if path.name == "scanner.py"
        for name in imports_of(path)
        if name.startswith("ottla") and not name.startswith(("ottla.protocol.compression", "ottla.protocol.errors"))
    )


def test_nested_functions_of_the_engine_do_not_refer_to_each_other():
    """In compiled code both would be in one object that refers to them: a reference cycle for each call."""
    faults(
        f"{path}: {nested.name} in {function.name} refers to {name.id}"
        for path in ENGINE
        for function in functions_below(tree_of(ROOT / path))
        for nested in functions_below(function)
        for name in ast.walk(nested)
        if isinstance(name, ast.Name) and name.id in {each.name for each in functions_below(function)}
    )


def functions_below(node):
    """Return the named functions inside a node, at any depth."""
    return [
        each
        for each in ast.walk(node)
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each is not node
    ]


def test_error_codes_are_compared_by_their_value():
    """A row of a reply may have a plain number, and compiled code turns a member of an IntEnum into one."""
    faults(
        f"{relative(path)}:{node.lineno}: compare an ErrorCode with == or !="
        for path in python_files("ottla", "lab")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Compare) and any(isinstance(each, (ast.Is, ast.IsNot)) for each in node.ops)
        if any(ast.unparse(each).startswith("ErrorCode.") for each in (node.left, *node.comparators))
    )


def test_constants_of_broker_and_protocol_are_final():
    """Compiled code reads a Final at once, and looks any other constant up in a dictionary. Of several constants in one
    assignment none can be Final, so the engine has no such assignment."""
    faults(
        f"{relative(path)}:{node.lineno}: {name.id} is a constant: write `{name.id}: Final = ...`"
        for path in python_files("ottla/broker", "ottla/protocol")
        for node in tree_of(path).body
        if isinstance(node, ast.Assign) and not ast.unparse(node.value).startswith(("TypeVar(", "ParamSpec("))
        for target in node.targets
        for name in (ast.walk(target) if relative(path) in ENGINE else [target])
        if isinstance(name, ast.Name) and name.id.isupper()
    )


def test_no_file_is_a_shelf_for_odds_and_ends():
    faults(f"{relative(path)}: name it after what it does" for path in python_files(*FOLDERS) if path.stem in SHELVES)


def test_no_file_names_a_path_of_one_machine():
    faults(
        f"{relative(path)}:{number}: {line.strip()[:80]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MACHINE_PATHS.search(line)
    )


def test_no_text_has_tabs_or_blanks_at_the_end_of_a_line():
    faults(
        f"{relative(path)}:{number}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if ("\t" in line and path.name != "Makefile") or line != line.rstrip()
    )


def test_a_pytest_within_the_tests_has_a_directory_of_its_own():
    """Else it is pytest's next session, and at its end it removes what earlier ones have left in the common directory:
    for minutes, where they have played a hundred thousand crashes, while the test that has started it waits."""
    texts = {path: path.read_text(encoding="utf-8") for path in python_files("tests")}
    faults(
        f"{relative(path)}: --basetemp=... for the pytest that it starts"
        for path, text in texts.items()
        if '"-m", "pytest"' in text and "--basetemp=" not in text
    )


def test_no_module_is_dead():
    """Each module is imported by another of ours or named as a program; one that only its own test imports is dead.

    What `client` and `testkit` offer may be used by the tests that play a whole broker.
    """
    modules = {name_of(path): path for path in python_files("ottla")}
    users = [*python_files("ottla", "benchmarks"), ROOT / "pyspark_ottla.py"]
    used = {name for path in users if path.exists() for name in imports_of(path) if modules.get(name) != path}
    players = [path for path in python_files("tests") if "unit" not in path.parts]
    offered = ("ottla.client", "ottla.testkit")
    used |= {name for path in players for name in imports_of(path) if name.startswith(offered)}
    table = (ROOT / "ottla" / "broker" / "api" / "table.py").read_text(encoding="utf-8")
    used |= {f"ottla.broker.api.{key.lower()}" for key in re.findall(r"Api\(\s*ApiKey\.(\w+)", table)}
    # Programs, the commands that are imported late, and what the build compiles are named in text.
    named = [ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / "hatch_build.py", *python_files("ottla/cli")]
    named.extend(ROOT / "ottla" / path for path in ("spark_jobs/command_lines.py", "protocol/requests/library.py"))
    texts = "".join(path.read_text(encoding="utf-8") for path in named)
    faults(
        f"{relative(path)}: nothing uses it"
        for name, path in modules.items()
        if path.name != "__init__.py" and name not in used
        if not (relative(path) in texts or re.search(rf"\b{re.escape(name)}\b", texts))
    )


def name_of(path):
    """The dotted name of a module; a package's `__main__` goes by the package's."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] in ("__init__", "__main__") else parts)
