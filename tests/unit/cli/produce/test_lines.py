"""Lines of stdin as records."""

import io
import json

import pytest

from ottla.cli.produce.lines import BadLine, Line, json_parser, parse_headers, plain_parser, read_lines


def parse_json(*lines, headers=()):
    given = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    return list(read_lines(io.BytesIO(given.encode()), json_parser(headers)))


def parse_plain(content, separator=None, headers=()):
    return list(read_lines(io.BytesIO(content), plain_parser(separator, headers)))


def test_a_line_is_a_value_as_it_is():
    assert [line.value for line in parse_plain(b"a b\r\n\n\xff\x00\nlast")] == [b"a b\r", b"", b"\xff\x00", b"last"]
    assert parse_plain(b"") == []


def test_a_separator_ends_the_key():
    lines = parse_plain(b"k:v:w\n:v\nk:\n", b":", (("h", b"1"),))
    assert [(line.key, line.value) for line in lines] == [(b"k", b"v:w"), (b"", b"v"), (b"k", b"")]
    assert {line.headers for line in lines} == {(("h", b"1"),)}


def test_a_line_without_the_separator_is_refused_with_its_number():
    with pytest.raises(BadLine, match="it has no ':' between key and value") as refused:
        parse_plain(b"a:b\nab\n", b":")
    assert refused.value.number == 2


def test_a_json_object_is_a_record():
    (line,) = parse_json(
        {
            "key": "k\u00e9",
            "value": {"base64": "/wA="},
            "headers": [["a", "1"], ["b", {"base64": "/w=="}]],
            "partition": 3,
            "timestamp": 17,
        },
        headers=(("c", b"2"),),
    )
    assert line == Line(1, "k\u00e9".encode(), b"\xff\0", (("a", b"1"), ("b", b"\xff"), ("c", b"2")), 3, 17)
    assert parse_json({"value": None, "key": "k", "headers": None}) == [Line(1, b"k", None)]


def test_fields_that_consume_and_dump_print_are_ignored():
    names = "kind topic offset fate waiting_for transactional_id producer_id producer_epoch sequence"
    assert parse_json({"value": "v", **dict.fromkeys(names.split(), 1)}) == [Line(1, None, b"v")]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("{\n", "not a record in JSON: Expecting property name"),
        ("\n", "not a record in JSON: Expecting value"),
        ("[1]\n", "an object with key, value, headers, partition, timestamp is needed"),
        ("[" * 100_000 + "\n", "too many levels of brackets"),
        ("1" * 5000 + "\n", "not a record in JSON: Exceeds the limit"),
        ({"vlaue": "v"}, "unknown field 'vlaue'"),
        ({"key": "k"}, "it has no value"),
        ({"value": 1}, "value must be a text"),
        ({"value": {"base64": "?"}}, "value is not base64"),
        ({"value": {"base64": "/w==", "more": 1}}, "value must be a text"),
        ('{"value": "\\ud800"}\n', "half of a surrogate pair"),
        ({"value": "v", "headers": {}}, "headers must be a list"),
        ({"value": "v", "headers": [["a"]]}, "a header must be"),
        ({"value": "v", "headers": [[1, "b"]]}, "a header must be"),
        ({"value": "v", "headers": [["a", None]]}, "header 'a' has no value"),
        ({"value": "v", "partition": -1}, "partition must be a number from 0 to"),
        ({"value": "v", "partition": True}, "partition must be a number from 0 to"),
        ({"value": "v", "partition": 2**31}, "partition must be a number from 0 to"),
        ('{"value": "v", "timestamp": 1e999}\n', "timestamp must be a number from 0 to"),
    ],
    ids=lambda given: str(given)[:30],
)
def test_a_line_that_is_no_record_in_json_is_refused(given, reason):
    with pytest.raises(BadLine) as refused:
        parse_json({"value": "first"}, given)
    assert refused.value.number == 2 and reason in str(refused.value)


def test_a_record_without_a_timestamp_gets_that_of_its_producer():
    assert parse_json({"value": "v", "timestamp": -1}) == [Line(1, None, b"v")]


def test_stdin_that_cannot_be_read_is_refused():
    class Broken:
        def readline(self, _):
            raise IsADirectoryError(21, "Is a directory")

    with pytest.raises(BadLine, match="stdin cannot be read: Is a directory"):
        list(read_lines(Broken(), plain_parser(None, ())))


def test_a_line_has_a_limit(monkeypatch):
    monkeypatch.setattr("ottla.cli.produce.lines.LONGEST_LINE", 4)
    assert [line.value for line in parse_plain(b"123\n456")] == [b"123", b"456"]
    with pytest.raises(BadLine, match="more than 4 bytes"):
        parse_plain(b"12345\n")


def test_headers_of_the_command_line():
    assert parse_headers(["a=1", "b=", "a=x=y", "c=\udcff"]) == (("a", b"1"), ("b", b""), ("a", b"x=y"), ("c", b"\xff"))
    for wrong in ("a", "\udcff=1"):
        with pytest.raises(ValueError, match=r"is not NAME=VALUE|no UTF-8"):
            parse_headers([wrong])
