"""Java's properties files: each drawn text gives the entries that `java.util.Properties` reads of it."""

import itertools
import json
import random
import subprocess
from pathlib import Path

import pytest

from ottla.protocol.errors import ProtocolError
from ottla.protocol.java.properties import parse_properties

PIECES = [
    *("a", "b1", "é", "=", ":", " ", "\t", "\f", "\n", "\r", "\r\n", "\\", "\\\n", "\\\r\n", "#", "!"),
    *("\\u00e9", "\\u12", "\\ud83d\\ude00", "\\t", "\\=", "\\ ", "\\:", "\\#", "\\\\", "node.id", "cluster.id="),
]


@pytest.mark.java
def test_drawn_texts_are_read_as_java_reads_them(tmp_path):
    draw = random.Random(7)
    texts = ["".join(draw.choices(PIECES, k=draw.randint(1, 9))) for _ in range(3_000)]
    texts += ["".join(pieces) for pieces in itertools.product(PIECES, repeat=2)]
    given = tmp_path / "texts"
    given.write_text("".join(f"{text.encode('latin-1').hex()}\n" for text in texts))
    program = Path(__file__).parent / "drivers/ReadProperties.java"
    java = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", program, given]
    done = subprocess.run(java, capture_output=True, check=True, timeout=300)
    for text, line in zip(texts, done.stdout.decode().splitlines(), strict=True):
        read = json.loads(line, object_hook=with_whole_characters)
        try:
            ours = {entry.key: entry.value for entry in parse_properties(text)}
        except ProtocolError:
            ours = None
        assert with_keys(ours) == with_keys(read), repr(text)


def with_whole_characters(entries):
    """Put U+FFFD in the place of half a surrogate pair, which Java keeps and Python cannot print."""
    return {replace_halves(key): replace_halves(value) for key, value in entries.items()}


def replace_halves(text):
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def with_keys(entries):
    """Leave out the empty key, an entry of which Java makes of a backslash at the end of a file."""
    return entries and {key: value for key, value in entries.items() if key}
