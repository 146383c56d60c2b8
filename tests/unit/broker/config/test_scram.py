"""`add.scram`: the first users of a new data directory, and refusals that do not show a secret."""

import pytest

from ottla.broker.config import ConfigError, Origin, Setting, load_config
from ottla.broker.config.scram import ScramUser, parse_scram_users

SALT = "MWx2NHBkbnc0ZndxN25vdGN4bTB5eTFrN3E="


def test_the_text_of_kafka_storage_is_read():
    text = (
        " SCRAM-SHA-512=[name=alice,password=alice=secret] , "
        f'SCRAM-SHA-256=[name="bob",iterations=8192,salt="{SALT}",password="bob "],'
    )
    assert parse_scram_users(text) == (
        ScramUser("SCRAM-SHA-512", "alice", "alice=secret", None, None, 4096),
        ScramUser("SCRAM-SHA-256", "bob", "bob ", None, b"1lv4pdnw4fwq7notcxm0yy1k7q", 8192),
    )
    assert parse_scram_users("") == parse_scram_users(" ") == ()


def test_a_salted_password_with_a_salt_is_read():
    (user,) = parse_scram_users(f"SCRAM-SHA-256=[name=bob,salt={SALT},saltedpassword=c2FsdGVk]")
    assert (user.password, user.salted_password) == (None, b"salted")


@pytest.mark.parametrize(
    ("text", "must_be"),
    [
        ("SECRET", "comma separated"),
        ("SCRAM-SHA-512=name=a,password=SECRET", "comma separated"),
        ("SCRAM-SHA-512=[name=a,password=SECRET", "comma separated"),
        ("SCRAM-SHA-512=[name=a,password=SECRET]SCRAM-SHA-256=[name=a,password=SECRET]", "comma separated"),
        ("PLAIN=[name=a,password=SECRET]", "one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-512=[name=a,password=SECRET,SECRET]", "a value contains no comma"),
        ("SCRAM-SHA-512=[name=a,password=SECRET,word=SECRET]", "a value contains no comma"),
        ("SCRAM-SHA-512=[]", "a value contains no comma"),
        ("SCRAM-SHA-512=[password=SECRET]", "of ASCII"),
        ("SCRAM-SHA-512=[name=,password=SECRET]", "of ASCII"),
        ("SCRAM-SHA-512=[name=josé,password=SECRET]", "of ASCII"),
        ("SCRAM-SHA-512=[name=a]", "each have a password"),
        ("SCRAM-SHA-512=[name=a,password=]", "each have a password"),
        ("SCRAM-SHA-512=[name=a,saltedpassword=c2FsdGVk]", "each have a password"),
        ("SCRAM-SHA-512=[name=a,salt=!SECRET,password=SECRET]", "whose salt is base64"),
        ("SCRAM-SHA-512=[name=a,iterations=4095,password=SECRET]", "from 4096 to 16384"),
        ("SCRAM-SHA-512=[name=a,iterations=16385,password=SECRET]", "from 4096 to 16384"),
        ("SCRAM-SHA-512=[name=a,iterations=-1,password=SECRET]", "from 4096 to 16384"),
        ("SCRAM-SHA-512=[name=a,password=SECRET],SCRAM-SHA-512=[name=a,password=SECRET]", "once for a mechanism"),
    ],
)
def test_invalid_scram_users_are_refused_without_their_password(text, must_be):
    with pytest.raises(ConfigError) as refused:
        load_config([Setting("add.scram", text, Origin("environment", "KAFKA_ADD_SCRAM"))])
    assert str(refused.value).startswith("add.scram=[hidden] (")
    assert must_be in str(refused.value)
    assert "SECRET" not in str(refused.value)


def test_scram_passwords_are_not_in_the_repr_of_a_config_or_user():
    text = "SCRAM-SHA-512=[name=alice,password=SECRET]"
    config = load_config([Setting("add.scram", text, Origin("flag", "--override"))]).config
    assert "SECRET" not in repr(config) + repr(parse_scram_users(text))
