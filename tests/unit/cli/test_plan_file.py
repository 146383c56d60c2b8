import json
from pathlib import Path

import pytest

from ottla.cli.plan_file import PlanError, read_plan

PAGE = Path(__file__).parents[3] / "docs" / "admin-port.md"
LOST = {"at": "reply", "api": "EndTxn", "do": "lose"}
FULL = {"at": "append", "do": "fail", "error": "ENOSPC", "where": {"topic": "ledger"}, "times": None}


@pytest.fixture
def plan(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_plan_is_a_list_of_faults_or_one(plan):
    assert read_plan(plan("plan.json", json.dumps([LOST, FULL]))) == [LOST, FULL]
    assert read_plan(plan("plan.json", json.dumps(LOST))) == [LOST]


def test_a_plan_may_be_yaml_with_comments(plan):
    text = """
# The answer to the first commit gets lost.
- at: reply
  api: EndTxn
  do: lose

- {at: append, do: fail, error: ENOSPC, where: {topic: ledger}, times: null}
"""
    for name in ("plan.yaml", "plan.yml", "plan"):
        assert read_plan(plan(name, text)) == [LOST, FULL]


def test_the_plan_of_the_docs_is_one(plan):
    text = PAGE.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    lost, full = read_plan(plan("plan.yaml", text))
    assert (lost["do"], full["error"]) == ("lose", "ENOSPC")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("plan.json", "[", "Expecting value: line 1 column 2 (char 1)"),
        ("plan.yaml", "- {at: reply", "while parsing a flow mapping"),
        ("plan.yaml", "- do: lose\n  at: reply\n- do: loose\n  at: reply\n", "fault 2: 'loose' is an unknown action"),
        ("plan.yaml", "", "fault 1: a fault must be an object, not None"),
        ("plan.yaml", "- !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_an_invalid_plan_is_a_one_line_error_with_its_path(plan, name, text, told):
    path = plan(name, text)
    with pytest.raises(PlanError) as raised:
        read_plan(path)
    assert str(raised.value).startswith(f"{path}: {told}")
    assert "\n" not in str(raised.value)
