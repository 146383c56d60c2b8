"""Patterns of ListTransactions: each row has the result of RE2/J 1.8 (used by Kafka 4.3.1) for the ids a42 and b42."""

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.pattern import AVAILABLE, MAX_MATCH_US, PatternError, compile_pattern

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="google-re2 is not installed")

NO = None  # no regular expression
ROWS = [
    (".*", "ab"),
    ("a.*", "a"),
    ("a", ""),
    (r"[ab]\d+", "ab"),
    ("(a|b).*", "ab"),
    ("(", NO),
    ("[", NO),
    ("a{2", ""),
    ("a{1001}", NO),
    ("\\", NO),
    ("*", NO),
    ("a**", NO),
    ("a++", NO),
    ("(?i)A.*", "a"),
    ("(?:a|b).+", "ab"),
    ("(?P<x>a).*", "a"),
    ("(?<x>a).*", "a"),
    (r"\w+", "ab"),
    (r"\pL\d+", "ab"),
    (r"\p{L}\d+", "ab"),
    ("^a.*$", "a"),
    (r"\Aa.*\z", "a"),
    (r"\Aa.*\Z", NO),
    (r"\Qa\E.*", "a"),
    ("(?=a).*", NO),
    (r"(a)\1", NO),
    ("a{0,2}.*", "ab"),
    (r"[[:alpha:]]\d+", "ab"),
    (r"[^a]\d+", "b"),
    (r"\x61.*", "a"),
    (r"\x{61}.*", "a"),
    ("(?s).*", "ab"),
    (r"a\C*", NO),
    ("x*?.*", "ab"),
    (".*+", NO),
    ("a{,2}.*", ""),
    ("a{2,1}", NO),
    ("]a", ""),
    ("a]", ""),
    ("a}", ""),
    ("{", ""),
    ("a|", ""),
    ("|a.*", "a"),
    ("()", ""),
    (")", NO),
    ("[a-", NO),
    ("[z-a]", NO),
    (r"\8", NO),
    (r"\a", ""),
    (r"\b.*", "ab"),
    (r"\Ba", ""),
    ("[]a].*", "a"),
    ("[^]a].*", "b"),
    ("(?z)a", NO),
    ("(?i", NO),
    ("(?-i)a.*", "a"),
    ("(?i:A).*", "a"),
    ("(?U)a.*", "a"),
    (r"\pN", ""),
    (r"\d", ""),
    (r"[\d]", ""),
    (r"[\dab]+", "ab"),
    (r"[a-\d]", NO),
    (r"\u0061.*", NO),
    (r"\é", ""),
    ("a{01}42", ""),
    (r"[\é\a-c].*", "ab"),
    (r"[\\é].*", ""),
    (r"a\C", NO),
    (r"\Q\C\E|a.*", "a"),
    ("(?P<x>a)(?P<x>4).*", NO),
    ("(?P<x>a)(?<y>4).*", "a"),
    ("[(?P<x>a][(?P<x>4].*", "a"),
    ("(?P<é>a).*", NO),
    ("{*a42", NO),
    ("a{+42", NO),
    ("a{{2}", NO),
    (r"\p{Greek}?a.*", "a"),
    (r"(?i)\p{Latin}\d+", "ab"),
]


@pytest.mark.parametrize(("text", "ids"), ROWS, ids=[row[0] for row in ROWS])
def test_row(text, ids):
    if ids is NO:
        with pytest.raises(PatternError):
            compile_pattern(text)
    else:
        pattern = compile_pattern(text)
        assert "".join(each[0] for each in ("a42", "b42") if pattern.matches(each)) == ids


@pytest.mark.parametrize(
    ("text", "id", "matches"),
    [
        (r"\é", "é", True),
        ("t{01}", "t", False),
        ("t{01}", "t{01}", True),
        ("t{1,02}", "t{1,02}", True),
        ("(?i)kk", "k\u212a", True),
        ("(?i)s", "\u017f", True),
        ("(?i)[^s]", "\u017f", False),
        ("(?i)\u1f80", "\u1f88", True),
    ],
)
def test_other_ids(text, id, matches):
    assert compile_pattern(text).matches(id) is matches


# Expressions that Python's `re` reads in the same way.
_ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\w", "\\d", "^", "$", "\\b", "-"])
_EXPRESSIONS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(_EXPRESSIONS, st.lists(st.text("ab1-\n", max_size=6), min_size=1, max_size=5))
def test_patterns_match_as_in_pythons_re_where_both_share_the_syntax(expression, texts):
    pattern = compile_pattern(expression)
    own = re.compile(expression.replace("$", r"\Z"), re.ASCII)
    for text in texts:
        assert pattern.matches(text) == (own.fullmatch(text) is not None), text


def test_a_nested_repetition_is_matched_without_backtracking():
    assert not compile_pattern("(a+)+(a|aa)*b").matches("a" * 30_000)


@pytest.mark.parametrize(
    "text",
    ["a" * 1025, "((a{1000}){1000}){1000}", r"\b?" + "a?" * 4000, r"\pL" * 65, r"\pL{1000}"],
)
def test_a_pattern_that_is_too_large_is_refused(text):
    with pytest.raises(PatternError):
        compile_pattern(text)


def test_no_text_costs_more_than_a_match_may():
    """Match the longest id that each expression accepts (at most 32,767 bytes). One byte more is refused."""
    for text in (".*", "orders-[0-9]+", r"(?i)[\pL\pN]+-\d{1,20}", r"(?:\b?a?)" * 100, "a?" * 400):
        pattern = compile_pattern(text)
        bytes_each_us = (pattern.cost_us("a" * 1000) - pattern.cost_us("")) / 1000
        longest = min(int(MAX_MATCH_US / bytes_each_us), 32_767)
        assert pattern.matches("a" * longest) in (True, False)
        assert pattern.cost_us("a" * longest) < MAX_MATCH_US + 10
        if longest < 32_767:
            with pytest.raises(PatternError, match="too large"):
                pattern.matches("a" * (longest + 1))
    assert longest > 400  # an expression of 800 instructions takes an id of ordinary length


@settings(max_examples=300, deadline=None)
@given(st.text("ab(){}[]|*+?\\^$.-:<>P,0123xpQE"))
def test_any_text_is_a_pattern_or_refused(text):
    try:
        pattern = compile_pattern(text)
    except PatternError:
        return
    assert pattern.matches("ab") in (True, False)


@pytest.mark.slow
def test_patterns_are_not_advertised_where_their_library_is_missing():
    code = """
import sys
sys.modules["re2"] = None
from ottla.broker.api.table import TABLE, list_versions
print(TABLE[66].max_version, dict((key, most) for key, _, most in list_versions())[66])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]
