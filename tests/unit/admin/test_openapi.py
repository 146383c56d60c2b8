from ottla.admin.about import own_routes, with_description
from ottla.admin.openapi import make_document
from ottla.admin.routes import Route

SCHEMA = {"type": "object", "required": ["on"], "properties": {"on": {"type": "string"}}}


async def nothing(request):
    raise AssertionError("nobody asks")


ROUTES = [
    Route("GET", "/v1/faults", nothing, "List faults", response_schema=SCHEMA),
    Route("POST", "/v1/faults", nothing, "Add a fault", request_schema=SCHEMA, status=201),
    Route("DELETE", "/v1/faults/{id}", nothing, "Remove a fault", query={"force": "Also while it holds."}, status=204),
]


def test_every_route_is_described_with_what_it_takes_and_gives():
    document = make_document(ROUTES, "1.2.3", has_token=False)
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == "1.2.3"
    listing = document["paths"]["/v1/faults"]["get"]
    assert listing["summary"] == "List faults"
    assert listing["responses"]["200"]["content"]["application/json"]["schema"] == SCHEMA
    adding = document["paths"]["/v1/faults"]["post"]
    assert adding["requestBody"] == {"required": True, "content": {"application/json": {"schema": SCHEMA}}}
    assert set(adding["responses"]) == {"201", "default"}
    removing = document["paths"]["/v1/faults/{id}"]["delete"]
    assert [(parameter["in"], parameter["name"]) for parameter in removing["parameters"]] == [
        ("path", "id"),
        ("query", "force"),
    ]
    assert removing["responses"]["204"] == {"description": "No Content"}


def test_a_token_is_described_where_there_is_one():
    assert "security" not in make_document(ROUTES, "1", has_token=False)
    document = make_document(ROUTES, "1", has_token=True)
    (scheme,) = document["security"]
    assert document["components"]["securitySchemes"][next(iter(scheme))] == {"type": "http", "scheme": "bearer"}


def test_the_built_in_routes_of_a_port_are_described():
    routes = with_description(own_routes(None, None, 0, ""), has_token=False)
    patterns = {route.pattern for route in routes}
    assert patterns >= {"/v1/broker", "/v1/loglevel", "/openapi.json"}
    assert set(make_document(routes, "1", has_token=False)["paths"]) == patterns
