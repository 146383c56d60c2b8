import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.admin.json_steps import ITEM_US, MOST_DEPTH, STEP_ITEMS, BadJson, read_json, write_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


def read(text):
    """Return (value, the charge of each step)."""
    steps, costs = read_json(text), []
    while True:
        try:
            costs.append(next(steps))
        except StopIteration as end:
            return end.value, costs


def refusal(text):
    with pytest.raises(BadJson) as raised:
        read(text)
    return str(raised.value)


@given(VALUES, st.sampled_from([None, 0, 3]), st.booleans())
def test_json_from_the_standard_library_is_read_to_the_same_value(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert read(text)[0] == value
    assert type(read(text)[0]) is type(value)


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn\\u \n\x01é', max_size=30))
def test_text_that_the_standard_library_refuses_is_refused(text):
    try:
        expected = json.loads(text, parse_constant=lambda word: pytest.fail("no constant has these letters"))
    except ValueError:
        refusal(text)
    else:
        try:
            assert read(text)[0] == expected
        except BadJson as stricter:
            assert any(word in str(stricter) for word in ("there twice", "surrogates", "too large"))


@given(VALUES.filter(lambda value: "\\ud" not in json.dumps(value)))
def test_written_json_is_read_by_the_standard_library(value):
    assert json.loads("".join(write_json(value))) == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a value is missing (line 1, column 1)"),
        ('{"a": 1,\n "b": }', "a value is missing (line 2, column 7)"),
        ('{"a": 1,}', "a name in double quotes is missing (line 1, column 9)"),
        ("{'a': 1}", "a name in double quotes is missing (line 1, column 2)"),
        ('{"a" 1}', "a colon is missing (line 1, column 6)"),
        ('{"a": 1 "b": 2}', "a comma or } is missing (line 1, column 9)"),
        ("[1 2]", "a comma or ] is missing (line 1, column 4)"),
        ('{"a": 1, "a": 2}', 'the name "a" occurs twice (line 1, column 10)'),
        ('{"a": nan}', "not a JSON value (line 1, column 7)"),
        ("-Infinity", "not a JSON value (line 1, column 1)"),
        ("1e999", "a number that is too large (line 1, column 1)"),
        ("1" * 401, "a number of more than 400 characters (line 1, column 1)"),
        ("01", "text after the value (line 1, column 2)"),
        ("[1] 2", "text after the value (line 1, column 5)"),
        ('"a', "a string is not closed (line 1, column 3)"),
        ('"a\nb"', "a string contains a control character that is not escaped (line 1, column 3)"),
        (r'"\x"', "an unknown escape (line 1, column 2)"),
        (r'"\u12"', "an unknown escape (line 1, column 2)"),
        (r'"\ud800"', "half of a surrogate pair (line 1, column 2)"),
        (r'"\ud800\ud800"', "half of a surrogate pair (line 1, column 2)"),
        (r'"a\udc00"', "half of a surrogate pair (line 1, column 3)"),
        ("[" * (MOST_DEPTH + 1), f"more than {MOST_DEPTH} nested values (line 1, column {MOST_DEPTH + 1})"),
    ],
)
def test_a_json_error_is_reported_with_its_line_and_column(text, told):
    assert refusal(text) == told


def test_depth_has_a_limit_that_is_allowed():
    text = "[" * MOST_DEPTH + "]" * MOST_DEPTH
    assert read(text)[0] == json.loads(text)


@pytest.mark.parametrize("unit", ["0,", '{"a":0},', '"",', '"\\n",', "[],", "  0,"])
def test_reading_json_is_charged_per_item_in_small_steps(unit):
    _, costs = read("[" + unit * 10_000 + "0]")
    assert max(costs) < 2 * STEP_ITEMS * ITEM_US
    assert sum(costs) >= (10_000 - STEP_ITEMS) * ITEM_US
