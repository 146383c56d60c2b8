"""The sdist and the wheel, built and installed as a user would, without a network."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from hatch_build import ENGINE, lacks
from ottla import __version__

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def run(*command, **more):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the sdist of this tree and unpack it. Return the folder of both."""
    folder = tmp_path_factory.mktemp("built")
    run("-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    with tarfile.open(folder / f"ottla-{__version__}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def plain(built):
    """Build the wheel of that sdist without compiled code."""
    return wheel_of(built, built / "plain", "0")


def wheel_of(built, folder, compiled):
    environment = {**os.environ, "OTTLA_COMPILE": compiled}
    run("-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=built / f"ottla-{__version__}", env=environment)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_the_sdist_has_what_its_tests_need(built):
    tree = built / f"ottla-{__version__}"
    wanted = (
        "Makefile",
        ".ci/run",
        "docker-compose.yml",
        "Dockerfile",
        "docs/site/zensical.toml",
        "CHANGELOG.md",
    )
    assert [name for name in wanted if not (tree / name).is_file()] == []
    data = [path.relative_to(ROOT) for path in (ROOT / "tests" / "data").rglob("*") if path.is_file()]
    assert [path for path in data if not (tree / path).is_file()] == []


@pytest.mark.slow
def test_the_wheel_is_the_package_and_nothing_else(plain):
    assert plain.name == f"ottla-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(plain) as wheel:
        tops = {name.split("/")[0] for name in wheel.namelist()}
        modules = {name for name in wheel.namelist() if name.endswith(".py")}
    assert tops == {"ottla", "pyspark_ottla.py", f"ottla-{__version__}.dist-info"}
    assert modules == {
        "pyspark_ottla.py",
        *(path.relative_to(ROOT).as_posix() for path in (ROOT / "ottla").rglob("*.py")),
    }


@pytest.mark.slow
def test_the_wheel_installs_and_runs(plain, tmp_path):
    assert "plain Python" in install(plain, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(lacks() is not None, reason=f"to compile Ottla: {lacks()}")
def test_a_wheel_built_with_a_compiler_has_the_compiled_walk_and_engine(built, tmp_path):
    wheel = wheel_of(built, built / "compiled", "1")
    with zipfile.ZipFile(wheel) as members:
        compiled = {name.partition(".")[0] for name in members.namelist() if name.endswith(".so")}
    walk = "ottla/protocol/record_walk_compiled"
    assert compiled == {walk, f"{walk}__mypyc", "ottla__mypyc", *(name.removesuffix(".py") for name in ENGINE)}
    assert "compiled engine" in install(wheel, tmp_path)


def install(wheel, tmp_path):
    """Install the wheel in a folder and return the output of its `--version`."""
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", tmp_path / "site", wheel)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    where = run("-c", "import ottla; print(ottla.__file__)", cwd=tmp_path, env=environment)
    assert Path(where.strip()).is_relative_to(tmp_path)
    assert "ready" in run("-m", "ottla.cli.main", "serve", "--help", cwd=tmp_path, env=environment)
    told = run("-m", "ottla.cli.main", "--version", cwd=tmp_path, env=environment)
    assert __version__ in told
    return told


@pytest.mark.conformance
def test_the_files_of_a_release_install_into_a_bare_environment(built):
    """The sources are a copy, so that nothing of this checkout is used. Takes packages from the network."""
    tree = built / f"ottla-{__version__}"
    done = subprocess.run(["make", "dist", f"PYTHON={sys.executable}"], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "plain Python" in done.stdout.splitlines()[-1]
    names = {path.name for path in (tree / "build/dist").iterdir()}
    assert names == {f"ottla-{__version__}.tar.gz", f"ottla-{__version__}-py3-none-any.whl", "sbom.cdx.json"}
    components = json.loads((tree / "build/dist/sbom.cdx.json").read_text())["components"]
    assert {"ottla", "kafka-python", "uvloop"} <= {each["name"] for each in components}


@pytest.mark.parametrize(("tag", "is_released"), [(f"v{__version__}", True), ("v0.0.0", False)])
def test_a_release_stops_if_its_tag_is_another_version(tag, is_released):
    job = yaml.safe_load(WORKFLOW.read_text())["jobs"]["version"]
    (script,) = [step["run"] for step in job["steps"] if "run" in step]
    done = subprocess.run(["bash", "-ec", script], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag})
    assert (done.returncode == 0) is is_released


def test_a_release_has_compiled_wheels_for_each_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pythons = [line.rpartition(" :: ")[2] for line in project["project"]["classifiers"] if ":: Python :: 3." in line]
    (first, last) = [int(each.partition(".")[2]) for each in pythons]
    wanted = " ".join(f"cp3{minor}-*" for minor in range(first, last + 1))
    assert project["tool"]["cibuildwheel"]["build"] == wanted
    assert project["project"]["requires-python"] == f">=3.{first}"


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="there is no actionlint")
def test_the_workflows_are_valid():
    done = subprocess.run(["actionlint", *WORKFLOW.parent.glob("*.yml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_changelog_has_the_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {__version__} - 20" in changelog
