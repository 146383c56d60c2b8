"""Packaging: only needed dependencies, extras, the entry point, the type marker, the licence."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

OF_USERS = {"aiokafka", "confluent-kafka"}
"""Client libraries that users install themselves."""
ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements):
    return {normal(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}


def nodes(tree):
    """Yield the nodes of all code that may run."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield from nodes(node)


def foreign_imports(folder):
    """Return the distributions that a folder's code imports at any depth. Imports for types alone do not count."""
    return imported_by((ROOT / folder).rglob("*.py"))


def imported_by(paths):
    found = set()
    for path in paths:
        for node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module.split(".")[0])
    distributions = packages_distributions()
    foreign = found - sys.stdlib_module_names - {"ottla"}
    return {normal(distributions.get(module, [module])[0]) for module in foreign}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "extras"),
    [("ottla/protocol", ()), ("ottla/broker", ("tls", "oauth", "zookeeper")), ("ottla/cli", ("tls", "top"))],
)
def test_the_core_imports_what_a_plain_install_brings_and_what_its_extras_add(folder, extras):
    added = [requirement for extra in extras for requirement in PROJECT["optional-dependencies"][extra]]
    assert foreign_imports(folder) - names(PROJECT["dependencies"]) == names(added)


@pytest.mark.parametrize(
    "command", ["ottla.cli.serve", "ottla.cli.certs", "ottla.cli.top.command", "ottla.broker.server"]
)
def test_importing_a_command_does_not_import_libraries_of_extras(command):
    late = {"cryptography", "joserfc", "kazoo", "rich"}
    source = f"import sys, {command}, ottla.broker.listening; print({late} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, text=True).stdout == "set()\n"


def test_the_client_imports_what_a_plain_install_brings_and_the_libraries_of_its_users():
    assert foreign_imports("ottla/client") - names(PROJECT["dependencies"]) == OF_USERS


@pytest.mark.slow
def test_importing_client_modules_does_not_import_client_libraries():
    modules = "ottla.client.transaction, ottla.client.libraries, ottla.testkit.kit.clients, ottla.testkit.pytest_plugin"
    source = f"import sys, {modules}; print({{'aiokafka', 'confluent_kafka'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize("folder", ["ottla/scan", "ottla/audit"])
def test_scanning_and_auditing_import_what_the_extra_audit_brings(folder):
    extras = PROJECT["optional-dependencies"]
    assert foreign_imports(folder) - names([*PROJECT["dependencies"], *extras["audit"], *extras["delta"]]) == set()


@pytest.mark.parametrize("folder", ["ottla/spark_jobs", "ottla/testkit"])
def test_spark_jobs_and_testkit_import_what_their_extras_bring(folder):
    extras = PROJECT["optional-dependencies"]
    assert "ottla[audit]" in extras["spark"]
    more = [*extras["audit"], *extras["spark"], *extras["delta"], "pytest"]
    assert foreign_imports(folder) - names([*PROJECT["dependencies"], *more]) - OF_USERS == set()


@pytest.mark.slow
@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_every_core_dependency_is_imported(requirement):
    used = set().union(*(foreign_imports(f"ottla/{part}") for part in ("protocol", "broker", "admin", "client", "cli")))
    used |= imported_by((ROOT / "ottla").glob("*.py"))
    assert names([requirement]) <= used


def test_the_codecs_are_pinned_to_the_series_they_were_measured_on():
    assert "kafka-python>=3.0.12,<3.1" in PROJECT["dependencies"]


def test_the_command_is_a_function_that_exists():
    module, _, function = PROJECT["scripts"]["ottla"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_package_has_its_type_marker_and_its_licence():
    assert (ROOT / "ottla/py.typed").is_file()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "`crc32c`, LGPL-2.1 or later" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wheel_includes_ottla_and_the_module_pyspark_ottla():
    chosen = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert set(chosen) == {"ottla", "pyspark_ottla.py"}
    assert all((ROOT / name).exists() for name in chosen)
