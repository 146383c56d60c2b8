"""Valid and invalid topic names, and the reasons in Kafka's words (`org.apache.kafka.common.internals.Topic`)."""

import pytest

from ottla.protocol.topic_names import detect_invalid_topic, unify_collision_chars

ILLEGAL = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "the empty string is not allowed"),
        (None, "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("a/b", f"'a/b' {ILLEGAL}"),
        ("\u00e9", f"'\u00e9' {ILLEGAL}"),
        ("a\n", f"'a\n' {ILLEGAL}"),
    ],
)
def test_an_invalid_topic_name_gets_kafkas_reason(name, why):
    assert detect_invalid_topic(name) == f"Topic name is invalid: {why}"


@pytest.mark.parametrize("name", ["a", "...", "A-z_0.9", "x" * 249])
def test_valid_topic_names_are_accepted(name):
    assert detect_invalid_topic(name) is None


def test_names_that_differ_in_dots_and_underscores_only_collide():
    assert unify_collision_chars("a.b_c") == unify_collision_chars("a_b.c") != unify_collision_chars("a-b.c")
