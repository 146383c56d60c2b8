"""Java's properties files: spellings and refusals."""

import pytest

from ottla.protocol.errors import ProtocolError
from ottla.protocol.java.properties import read_properties

SPELLINGS = {
    "colon": ("node.id : 1", {"node.id": "1"}),
    "blank": ("node.id 1", {"node.id": "1"}),
    "tabs": ("node.id\t=\t1\r\ncluster.id=c\r\n", {"node.id": "1", "cluster.id": "c"}),
    "empty": ("cluster.id=", {"cluster.id": ""}),
    "twice": ("a=1\na=2", {"a": "2"}),
    "comment": ("\\\n#a=1", {}),
    "pair": ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
}


@pytest.mark.parametrize(("text", "expected"), SPELLINGS.values(), ids=SPELLINGS)
def test_spellings_of_java(text, expected):
    assert read_properties(text.encode()) == expected


def test_bytes_that_are_not_utf_8_are_latin_1():
    assert read_properties(b"a=\xe9") == {"a": "é"}


def test_an_escape_without_four_digits_is_refused_with_its_line():
    with pytest.raises(ProtocolError, match="line 2: "):
        read_properties(b"a=1\nb=\\u12\n")
