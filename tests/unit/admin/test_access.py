import pytest

from ottla.admin.access import Access, is_every_interface, is_loopback, single
from ottla.admin.routes import AdminError

HERE = Access("127.0.0.1", None)
TOKEN = "correct-horse-battery"


def ask(access, **headers):
    return access.check({name.replace("_", "-").encode(): value.encode() for name, value in headers.items()})


def refusal(access, **headers):
    with pytest.raises(AdminError) as raised:
        ask(access, **headers)
    return raised.value


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:9644", "127.0.0.1", "127.9.9.9", "localhost:1", "LOCALHOST", "localhost.", "[::1]:9644", "[::1]"],
)
def test_every_loopback_name_is_a_valid_host_with_any_port(host):
    ask(HERE, host=host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:9644",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "0.0.0.0:9644",
        "[::2]:9644",
        "",
        "[",
        "evil.example@127.0.0.1",
        "2130706433",
    ],
)
def test_a_host_that_is_no_loopback_name_is_refused(host):
    assert refusal(HERE, host=host).status == 403


def test_a_port_on_an_address_is_known_by_it_and_by_this_machines_names():
    access = Access("192.168.1.5", TOKEN)
    for host in ("192.168.1.5:9644", "localhost:9644", "[::ffff:192.168.1.5]:9644"):
        ask(access, host=host, authorization=f"Bearer {TOKEN}")
    assert refusal(access, host="192.168.1.6", authorization=f"Bearer {TOKEN}").status == 403
    named = Access("Broker.example", TOKEN)
    ask(named, host="broker.example:9644", authorization=f"Bearer {TOKEN}")
    assert refusal(named, host="other.example").message == (
        "The Host header other.example is not a name of this port: send requests to localhost or Broker.example"
    )


@pytest.mark.parametrize("bound", ["", "0.0.0.0", "::"])
def test_a_port_on_every_interface_is_known_by_any_name_to_who_has_the_token(bound):
    access = Access(bound, TOKEN)
    ask(access, host="broker.example", authorization=f"Bearer {TOKEN}")
    assert refusal(access, host="broker.example").status == 401


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://localhost:9644", "http://localhost:3000", "http://localhost", ""]
)
def test_a_page_from_elsewhere_is_refused(origin):
    assert refusal(HERE, host="localhost:9644", origin=origin).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "Same-Originish"])
def test_a_sec_fetch_site_other_than_same_origin_or_none_is_refused(site):
    assert refusal(HERE, host="localhost:9644", sec_fetch_site=site).status == 403


def test_our_own_page_and_a_typed_address_are_let_in():
    ask(HERE, host="localhost:9644", origin="http://localhost:9644", sec_fetch_site="same-origin")
    ask(HERE, host="LocalHost:9644", origin="http://localhost:9644", sec_fetch_site="none")


def test_a_request_without_a_host_header_is_accepted():
    ask(HERE)
    assert refusal(HERE, origin="http://evil.example").status == 403


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer é"]
)
def test_a_missing_or_wrong_token_gets_401_without_revealing_it(given):
    error = refusal(Access("127.0.0.1", TOKEN), host="localhost", authorization=given)
    assert (error.status, error.headers) == (401, (("WWW-Authenticate", 'Bearer realm="ottla"'),))
    assert TOKEN not in error.message


def test_the_token_lets_in_but_no_page_from_elsewhere():
    access = Access("127.0.0.1", TOKEN)
    ask(access, host="localhost", authorization=f"bearer {TOKEN}")
    for other in ({"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}):
        assert refusal(access, host="localhost", authorization=f"Bearer {TOKEN}", **other).status == 403


@pytest.mark.parametrize("name", [b"host", b"origin", b"authorization", b"content-type", b"sec-fetch-site"])
def test_a_header_used_for_a_decision_is_refused_if_repeated(name):
    with pytest.raises(AdminError) as raised:
        single([(name, b"a"), (b"accept", b"*/*"), (b"accept", b"*/*"), (name, b"a")])
    assert (raised.value.status, raised.value.message) == (400, f"The header {name.decode()} occurs twice")


def test_loopback_and_wildcard_addresses_are_recognized():
    assert all(map(is_loopback, ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "localhost", "Localhost."]))
    assert not any(
        map(is_loopback, ["0.0.0.0", "::", "", "10.0.0.1", "broker", "localhost.example", "::ffff:10.0.0.1"])
    )
    assert all(map(is_every_interface, ["", "0.0.0.0", "::"]))
    assert not any(map(is_every_interface, ["127.0.0.1", "localhost", "::1"]))


OPENED = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}


def ask_for_page(access, is_public=True, is_entry=True, **headers):
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return access.check(named, is_public=is_public, is_entry=is_entry)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_from_another_site_opens_the_page_and_nothing_else(site):
    ask_for_page(HERE, sec_fetch_site=site, **OPENED)
    for is_public in (True, False):
        with pytest.raises(AdminError) as raised:
            ask_for_page(HERE, is_public, is_entry=False, sec_fetch_site=site, **OPENED)
        assert raised.value.status == 403


@pytest.mark.parametrize("other", [{"sec_fetch_mode": "no-cors"}, {"sec_fetch_dest": "iframe"}])
def test_the_page_is_not_loaded_into_another(other):
    with pytest.raises(AdminError) as raised:
        ask_for_page(HERE, **OPENED | {"sec_fetch_site": "cross-site"} | other)
    assert raised.value.status == 403


def test_a_public_path_needs_no_token_but_a_known_host():
    access = Access("127.0.0.1", TOKEN)
    ask_for_page(access, is_entry=False, host="localhost:1")
    with pytest.raises(AdminError) as raised:
        ask_for_page(access, host="evil.example")
    assert raised.value.status == 403
