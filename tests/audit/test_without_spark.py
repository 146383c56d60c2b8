"""Without Spark, the scan and the audit work, and every function that needs Spark says that it is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the audit extra is not installed")

from ottla.spark_jobs import alert, export
from tests.timeout import EVENT_TIMEOUT_S

ROOT = Path(__file__).parents[2]
# Neither imported nor found.
WITHOUT = "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; "
EVERYTHING = """
import importlib, pathlib
for room in ("scan", "audit"):
    for path in pathlib.Path("ottla", room).rglob("*.py"):
        importlib.import_module(".".join(path.with_suffix("").parts))
print("imported")
"""
COMMAND = "from ottla.cli.main import main; sys.exit(main())"


def run(program, *arguments, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=EVENT_TIMEOUT_S,
        check=False,
    )


def contents(folder):
    """Return the files of an export, and their bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def timeless(printed):
    """Return alerts without the fields that grow with time."""
    rows = map(json.loads, printed.splitlines())
    return [{name: row[name] for name in row if name not in ("seen", "ageMs", "message")} for row in rows]


@pytest.mark.slow
def test_every_module_of_the_scan_and_the_audit_is_imported():
    done = run(EVERYTHING)
    assert (done.stderr, done.stdout) == ("", "imported\n")


@pytest.mark.slow
def test_an_audit_finds_reports_and_writes_what_it_does_with_spark(reference, run_audit, tmp_path):
    arguments = (reference("clean"), "--format", "json", "--as-of", "1795400000000")
    more = ("--output", tmp_path / "tables", "--report", tmp_path / "audit.html")
    done = run(COMMAND, "audit", *arguments, *more)
    code, out, err = run_audit(*arguments)
    assert (done.returncode, done.stderr, code, err) == (1, "", 1, "")
    assert sorted(map(json.loads, done.stdout.splitlines()), key=str) == sorted(
        map(json.loads, out.splitlines()), key=str
    )
    assert (tmp_path / "audit.html").stat().st_size > 10_000
    assert (tmp_path / "tables" / "_SUCCESS").exists()


@pytest.mark.parametrize(
    ("job", "options"), [("audit", ["--run-on", "spark"]), ("export", ["exported", "--run-on", "spark"]), ("alert", [])]
)
def test_a_job_on_spark_names_what_to_install_in_one_line(reference, tmp_path, job, options):
    done = run(COMMAND, job, reference("clean"), *options, cwd=tmp_path)
    told = f"ottla {job}: the {job} on Spark needs PySpark: pip install 'ottla[spark]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_an_export_by_threads_writes_what_it_does_with_spark(reference, tmp_path, isolation, capsys):
    options = ("--isolation-level", isolation)
    done = run(COMMAND, "export", reference("unclean"), tmp_path / "without", *options)
    assert (done.returncode, done.stderr) == (0, "")
    pytest.importorskip("pyspark", reason="the spark extra is not installed: nothing to compare with")
    assert export.main([str(reference("unclean")), str(tmp_path / "with"), *options]) == 0
    assert done.stdout == capsys.readouterr().out.replace(str(tmp_path / "with"), str(tmp_path / "without"))
    without, beside = (contents(tmp_path / folder) for folder in ("without", "with"))
    assert without == beside
    assert any(name.endswith(".parquet") for name in without)


@pytest.mark.slow
def test_alert_once_prints_the_same_with_and_without_spark(reference, capsys):
    done = run(COMMAND, "alert", reference("unclean"), "--once", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    pytest.importorskip("pyspark", reason="the spark extra is not installed: nothing to compare with")
    assert alert.main([str(reference("unclean")), "--once", "--format", "json"]) == 0
    assert timeless(done.stdout) == timeless(capsys.readouterr().out) != []


def test_an_audit_without_the_libraries_of_its_extra_names_the_extra(reference):
    lacking = "import ottla.scan.needs as needs; needs.MODULES += ('no_such_module',); "
    done = run(lacking + COMMAND, "audit", reference("clean"))
    told = "ottla audit: the audit needs no_such_module: pip install 'ottla[audit]', or '.[audit]' in a checkout\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


@pytest.mark.parametrize("job", ["audit", "alert", "export"])
def test_a_job_without_click_fails_with_an_install_hint_in_one_line(job):
    script = (
        f"sys.modules['click'] = None; import runpy; runpy.run_path('ottla/spark_jobs/{job}.py', run_name='__main__')"
    )
    done = run(script, "data")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(" lacks click: pip install 'ottla[spark]' there, or pip install click\n")
    assert done.stderr.count("\n") == 1
