"""JAAS entries as Kafka reads them, and the errors of entries that it does not read."""

import pytest

from ottla.protocol.java.jaas import parse_jaas, parse_jaas_file

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{PLAIN} required;", {}),
        (f'{PLAIN} required user_alice="secret";', {"user_alice": "secret"}),
        (f"{PLAIN} REQUIRED user_alice=secret user_bob='b b' ;", {"user_alice": "secret", "user_bob": "b b"}),
        (
            f'{PLAIN} required\n  // who\n user_a="x;=y" /* and\n*/ user_b="//z";\n',
            {"user_a": "x;=y", "user_b": "//z"},
        ),
        (f'{PLAIN} required user_a="a\\"b\\\\c\\n\\101";', {"user_a": 'a"b\\c\nA'}),
        (f'{PLAIN} required "user_a b"="";', {"user_a b": ""}),
        (f'{PLAIN} required user_a-b$c.d="1" user_a-b$c.d="2";', {"user_a-b$c.d": "2"}),
        (f'{PLAIN} required user_zoë="grün";', {"user_zoë": "grün"}),
    ],
)
def test_an_entry_has_its_options(text, options):
    module = parse_jaas(text)
    assert (module.name, module.options) == ("PlainLoginModule", options)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a JAAS entry"),
        (PLAIN, "with a module and a flag"),
        (f"{PLAIN} maybe user_a=hush;", "with a module and a flag"),
        (f"{PLAIN} required user_a=hush", "ends with ;"),
        (f"{PLAIN} required user_a hush;", "option 1 is KEY=VALUE"),
        (f"{PLAIN} required user_a=hush user_b=;", "option 2 is KEY=VALUE"),
        (f'{PLAIN} required user_a="hush;', "in quotes"),
        (f"{PLAIN} required user_a=hush#;", "in quotes"),
        (f"{PLAIN} required; {PLAIN} required user_a=hush;", "one JAAS entry"),
    ],
)
def test_a_malformed_jaas_entry_is_refused_without_its_secrets(text, told):
    with pytest.raises(ValueError, match=told) as refused:
        parse_jaas(text)
    assert "hush" not in str(refused.value)


def test_a_module_shows_no_option():
    assert repr(parse_jaas(f"{PLAIN} required user_a=hush;")) == "LoginModule(PlainLoginModule, 1 options)"


def test_a_file_has_entries_by_name():
    found = parse_jaas_file(
        f'KafkaServer {{ {PLAIN} required user_a="1"; x.ScramLoginModule required; }};\nClient {{}};'
    )
    assert {name: [module.name for module in modules] for name, modules in found.items()} == {
        "KafkaServer": ["PlainLoginModule", "ScramLoginModule"],
        "Client": [],
    }


@pytest.mark.parametrize("text", ["KafkaServer", "KafkaServer {", "KafkaServer { x.Y required; }", "{ };", "a b"])
def test_a_file_that_is_cut_is_none(text):
    with pytest.raises(ValueError, match="NAME"):
        parse_jaas_file(text)
