import pytest

from ottla.admin.fields import check_body
from ottla.admin.routes import AdminError

FAULT = {
    "type": "object",
    "required": ["on"],
    "properties": {
        "on": {"type": "string", "enum": ["EndTxn", "Produce"]},
        "nth": {"type": "integer", "minimum": 1, "maximum": 10},
        "topic": {"type": ["string", "null"], "minLength": 1, "maxLength": 5},
        "delay_ms": {"type": "number", "minimum": 0},
        "once": {"type": "boolean"},
        "partitions": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "reply": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
        "labels": {"type": "object"},
        "few": {"type": "array", "maxItems": 2},
    },
}


@pytest.mark.parametrize(
    "body",
    [
        {"on": "EndTxn"},
        {"on": "Produce", "nth": 1, "topic": None, "delay_ms": 0.5, "once": True, "partitions": [0, 1]},
        {"on": "Produce", "nth": 2.0, "delay_ms": 7, "reply": {"error": "FENCED"}, "labels": {"any": [1, "thing"]}},
    ],
)
def test_a_body_that_matches_the_schema_is_returned_unchanged(body):
    assert check_body(body, FAULT) is body


def test_a_list_body_is_accepted_if_the_schema_allows_arrays():
    schema = {"type": ["object", "array"]}
    assert check_body([{"on": "EndTxn"}], schema) == [{"on": "EndTxn"}]
    assert check_body({"on": "EndTxn"}, schema) == {"on": "EndTxn"}
    with pytest.raises(AdminError, match=r"^The body must be an object or an array$"):
        check_body("EndTxn", schema)


def test_a_missing_body_is_an_empty_object_if_no_field_is_required():
    assert check_body(None, {"type": "object", "properties": {"days": {"type": "number"}}}) == {}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "The request needs a body: a JSON object"),
        (dict.fromkeys(map(str, range(1001))), "The body must have at most 1000 names"),
        ({"on": "EndTxn", "partitions": [0] * 1001}, "partitions must have at most 1000 items"),
        ({"on": "EndTxn", "few": [0] * 3}, "few must have at most 2 items"),
        ([], "The body must be an object"),
        ({}, "on is missing"),
        ({"on": "EndTxn", "nht": 1}, "nht is not known: did you mean nth?"),
        ({"on": "EndTx"}, "on must be one of EndTxn, Produce"),
        ({"on": "EndTxn", "nth": "1"}, "nth must be a whole number"),
        ({"on": "EndTxn", "nth": 1.5}, "nth must be a whole number"),
        ({"on": "EndTxn", "nth": True}, "nth must be a whole number"),
        ({"on": "EndTxn", "nth": 0}, "nth must be at least 1"),
        ({"on": "EndTxn", "nth": 11}, "nth must be at most 10"),
        ({"on": "EndTxn", "topic": 1}, "topic must be a string or null"),
        ({"on": "EndTxn", "topic": ""}, "topic must not be empty"),
        ({"on": "EndTxn", "topic": "ledger"}, "topic must have at most 5 characters"),
        ({"on": "EndTxn", "delay_ms": False}, "delay_ms must be a number"),
        ({"on": "EndTxn", "once": 1}, "once must be true or false"),
        ({"on": "EndTxn", "partitions": {}}, "partitions must be an array"),
        ({"on": "EndTxn", "partitions": [0, -1]}, "partitions[1] must be at least 0"),
        ({"on": "EndTxn", "reply": {}}, "reply.error is missing"),
        ({"on": "EndTxn", "reply": {"error": 1}}, "reply.error must be a string"),
        ({"on": "EndTxn", "reply": {"error": "X", "eror": "X"}}, "reply.eror is not known: did you mean error?"),
    ],
)
def test_the_first_schema_violation_is_reported(body, message):
    with pytest.raises(AdminError) as raised:
        check_body(body, FAULT)
    assert (raised.value.status, raised.value.message) == (422, message)
