"""Where there is no Spark: scanning and auditing work all the same, and what needs it says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

pytest.importorskip("numba", reason="the spark extra is not installed")

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


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE_S,
        check=False,
    )


def test_every_module_of_the_scan_and_the_audit_is_imported():
    done = run(EVERYTHING)
    assert (done.stderr, done.stdout) == ("", "imported\n")


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


def test_spark_is_asked_for_and_missed_in_one_line(tmp_path):
    done = run(COMMAND, "audit", tmp_path, "--run-on", "spark")
    told = "ottla audit: the audit on Spark needs PySpark: pip install 'ottla[spark]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def test_an_export_that_threads_would_make_misses_it_in_one_line(reference, tmp_path):
    done = run(COMMAND, "export", reference("clean"), tmp_path / "exported")
    told = "ottla export: the export needs PySpark: pip install 'ottla[spark]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    assert not (tmp_path / "exported").exists()


def test_an_audit_without_the_libraries_of_its_extra_names_the_extra(reference):
    lacking = "import ottla.scan.needs as needs; needs.MODULES['no_such_module'] = 'no-such-thing'; "
    done = run(lacking + COMMAND, "audit", reference("clean"))
    told = "ottla audit: the audit needs no-such-thing: pip install 'ottla[audit]', or '.[audit]' in a checkout\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


@pytest.mark.parametrize("job", ["audit", "alert", "export"])
def test_a_driver_without_click_is_told_so_in_one_line(job):
    script = (
        f"sys.modules['click'] = None; import runpy; runpy.run_path('ottla/spark_jobs/{job}.py', run_name='__main__')"
    )
    done = run(script, "data")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(" lacks click: pip install 'ottla[spark]' there, or pip install click\n")
    assert done.stderr.count("\n") == 1
