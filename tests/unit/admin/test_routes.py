import pytest

from ottla.admin.routes import AdminError, Route, Router


async def nothing(request):
    raise AssertionError("nobody asks")


def route(method, pattern, **more):
    return Route(method, pattern, nothing, "Does something", **more)


ROUTER = Router(
    [
        route("GET", "/v1/faults"),
        route("POST", "/v1/faults"),
        route("GET", "/v1/faults/{id}", query={"wait_ms": "How long to wait.", "verbose": "Say more."}),
        route("DELETE", "/v1/faults/{fault}"),
        route("GET", "/v1/faults/points"),
        route("PUT", "/v1/topics/{topic}/partitions/{partition}"),
        route("GET", "/"),
    ]
)


def catch_error(method, target):
    with pytest.raises(AdminError) as raised:
        ROUTER.match(method, target)
    return raised.value


def test_names_of_a_pattern_are_found_in_the_path():
    found = ROUTER.match("PUT", "/v1/topics/audit-log/partitions/3")
    assert found.parameters == {"topic": "audit-log", "partition": "3"}
    assert found.path == "/v1/topics/audit-log/partitions/3"


def test_methods_of_one_path_may_name_its_parts_differently():
    assert ROUTER.match("GET", "/v1/faults/7").parameters == {"id": "7"}
    assert ROUTER.match("DELETE", "/v1/faults/7").parameters == {"fault": "7"}


def test_a_literal_route_matches_before_one_with_parameters():
    assert ROUTER.match("GET", "/v1/faults/points").route.pattern == "/v1/faults/points"


def test_a_name_in_a_path_may_have_any_character_escaped():
    assert ROUTER.match("GET", "/v1/faults/a%2Fb%20%C3%A9").parameters == {"id": "a/b é"}


def test_head_matches_the_route_of_get():
    assert ROUTER.match("HEAD", "/v1/faults").route.method == "GET"


@pytest.mark.parametrize(
    "target",
    ["/v1", "/v1/", "/v1/faults/", "//v1/faults", "/v1/faults/7/", "/v1/../faults", "/../../etc/passwd", "/V1"],
)
def test_an_unknown_path_gets_404_with_a_pointer_to_openapi_json(target):
    error = catch_error("GET", target)
    assert (error.status, error.message) == (
        404,
        f"There is nothing at {target}: GET /openapi.json lists the paths",
    )


def test_dots_in_a_path_are_a_name_like_any_other():
    assert ROUTER.match("GET", "/v1/faults/%2e%2e%2f%2e%2e").parameters == {"id": "../.."}


def test_an_unsupported_method_gets_405_with_the_allowed_ones():
    error = catch_error("PATCH", "/v1/faults")
    assert (error.status, error.headers) == (405, (("Allow", "GET, HEAD, POST"),))
    assert error.message == "/v1/faults takes GET, HEAD, POST, not PATCH"
    assert catch_error("HEAD", "/v1/topics/a/partitions/0").headers == (("Allow", "PUT"),)


@pytest.mark.parametrize("target", ["*", "v1/faults", "http://127.0.0.1:9644/v1/faults", ""])
def test_a_target_that_is_no_path_is_refused(target):
    assert catch_error("GET", target).status == 400


@pytest.mark.parametrize("target", ["/v1/faults/%ff", "/v1/faults/7?wait_ms=%ff"])
def test_escapes_that_are_not_utf_8_are_refused(target):
    assert catch_error("GET", target).status == 400


def test_a_query_has_the_names_of_its_route_once():
    assert ROUTER.match("GET", "/v1/faults/7?wait_ms=5&verbose=").query == {"wait_ms": "5", "verbose": ""}
    assert (
        catch_error("GET", "/v1/faults/7?wait_ms=5&wait_ms=6").message == "The query has the parameter 'wait_ms' twice"
    )
    assert (
        catch_error("GET", "/v1/faults/7?wait=5").message
        == "The query has an unknown parameter 'wait': did you mean wait_ms?"
    )
    assert (
        catch_error("GET", "/v1/faults/7?x=5").message
        == "The query has an unknown parameter 'x': there is wait_ms, verbose"
    )
    assert catch_error("GET", "/v1/faults?x=5").message == "The query has an unknown parameter 'x': there is none"
    assert catch_error("GET", "/v1/faults/7?" + "&".join("abcdefghijklmnopqrstuvwxyz" * 2)).status == 400


def test_two_routes_that_match_the_same_are_a_mistake():
    with pytest.raises(ValueError, match=r"^GET /v1/\{other\} occurs twice$"):
        Router([route("GET", "/v1/{name}"), route("GET", "/v1/{other}")])
