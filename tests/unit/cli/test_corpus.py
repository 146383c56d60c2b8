"""`ottla corpus`: lists the cases and writes them."""

import json

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.catalogue import CASES, cases

ONE = "one-aborted-transaction"


def run(*arguments):
    return CliRunner().invoke(main, ["corpus", *map(str, arguments)], catch_exceptions=False)


def test_every_case_is_listed_with_what_it_is():
    text = run("list").stdout
    assert all(f"  {case.name}  {case.what}" in text for case in CASES)
    rows = json.loads(run("list", "--format", "json").stdout)["cases"]
    assert [(row["case"], row["reported"]) for row in rows] == [(case.name, [*case.reported]) for case in CASES]


def test_cases_are_picked_by_name():
    rows = json.loads(run("list", "--only", "reused-id-*", "--format", "json").stdout)["cases"]
    assert [row["case"] for row in rows] == [case.name for case in cases("reused-id-*")] != []


def test_write_creates_exactly_the_files_of_the_case(tmp_path):
    result = run("write", tmp_path / "corpus", "--only", ONE)
    assert result.exit_code == 0 and result.stdout.startswith(f"1 case in {tmp_path / 'corpus'}, ")
    place = tmp_path / "corpus" / ONE
    found = {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert found == files_of(cases(ONE)[0])


def test_write_refuses_an_existing_case_folder(tmp_path):
    (tmp_path / ONE).mkdir()
    result = run("write", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"ottla: {tmp_path / ONE} is there already: remove it, or write elsewhere\n"
    assert [path.name for path in tmp_path.iterdir()] == [ONE]


@pytest.mark.parametrize("arguments", [("list",), ("write", "DIR")])
def test_a_name_that_no_case_has_is_refused(arguments, tmp_path):
    result = run(*(tmp_path if word == "DIR" else word for word in arguments), "--only", "nothing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no case is named nothing" in result.stderr
