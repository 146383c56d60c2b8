"""`ssl.principal.mapping.rules`: cases of Kafka's own `SslPrincipalMapperTest`, and replacements as Java has them."""

import pytest

from ottla.broker.config.principals import mapped_name, parse_principal_rules

RULES = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_is_for_a_name_decides(name, user):
    assert mapped_name(parse_principal_rules(RULES), name) == user


def test_a_name_without_a_rule_has_no_user():
    assert mapped_name(parse_principal_rules("RULE:^CN=a$/b/"), "CN=ab") is None


@pytest.mark.parametrize(
    ("rule", "name", "user"),
    [
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/", r"CN=Tkac\, Adam,OU=ITZ", r"Tkac\, Adam"),
        ("RULE:^CN=(.*)$/$1$2/", "CN=a", "a$2"),
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        ("RULE:^CN=(.*)$/$0/", "CN=a", "CN=a"),
        ("RULE:^CN=(?<who>.*)$/${who}!/", "CN=a", "a!"),
        (r"RULE:^CN=(.*)$/\$1\/x/", "CN=a", "$1/x"),
        ("RULE:^CN=(a)|CN=(b)$/<$1$2>/", "CN=b", "<b>"),
        ("RULE:[a-z]/x/U", "a", "X"),
    ],
)
def test_replacements_are_javas(rule, name, user):
    assert mapped_name(parse_principal_rules(rule), name) == user


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("DEFAULT", 1),
        ("RULE://", 1),
        ("  RULE:// ,  DEFAULT  ", 2),
        ("  RULE:  /     /U   ,DEFAULT  ", 2),
        ("  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ", 3),
        (",   , , ,      , , ,   ", 0),
        (",,RULE://,,,DEFAULT,,", 2),
        (r"RULE:\/\\\(\)\n\t/\/\//", 1),
        (r"RULE:\**\/+/*/L,RULE:\/*\**/**/", 2),
        ("RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/", 1),
        (
            r"RULE:,RULE:,/,RULE:,\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT",
            5,
        ),
    ],
)
def test_a_list_of_rules_is_taken_apart(text, number):
    assert len(parse_principal_rules(text)) == number


@pytest.mark.parametrize(
    "text",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(/$1/",
        "RULE:^CN=(.*)/${who}/",
    ],
)
def test_an_invalid_principal_rule_is_refused_with_the_valid_format(text):
    with pytest.raises(ValueError, match="RULE:PATTERN/REPLACEMENT/"):
        parse_principal_rules(text)
