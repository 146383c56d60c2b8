import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.admin.json_text import BadJson, read_json, write_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@pytest.mark.slow
@given(VALUES, st.sampled_from([None, 0, 3]), st.booleans())
def test_json_from_the_standard_library_is_read_to_the_same_value(value, indent, ascii_only):
    found = read_json(json.dumps(value, indent=indent, ensure_ascii=ascii_only))
    assert (found, type(found)) == (value, type(value))


@pytest.mark.slow
@given(VALUES)
def test_written_json_is_read_by_the_standard_library(value):
    assert json.loads("".join(write_json(value))) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value (line 1, column 1)"),
        ('{"a": 1,\n "b": }', "Expecting value (line 2, column 7)"),
        ("[1] 2", "Extra data (line 1, column 5)"),
        ('{"a": 1, "a": 2}', 'the name "a" occurs twice'),
        ('[{"b": {"a": 1, "c": 2, "a": 3}}]', 'the name "a" occurs twice'),
        ('{"a": NaN}', "NaN is no JSON value"),
        ("-Infinity", "-Infinity is no JSON value"),
        ("-1e999", "the number -1e999 is too large"),
        (r'"\ud800"', "half of a surrogate pair"),
        (r'{"a\udc00": 1}', "half of a surrogate pair"),
        ("[" * 60_000, "too many nested values"),
        ('{"a":' * 13_000, "too many nested values"),
    ],
)
def test_invalid_json_is_refused_with_the_reason(text, message):
    with pytest.raises(BadJson) as raised:
        read_json(text)
    assert str(raised.value) == message


def test_a_long_integer_is_refused():
    with pytest.raises(BadJson, match="Exceeds the limit"):
        read_json("1" * 60_000)
