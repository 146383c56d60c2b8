"""Fields, types and values in docs/json.md for the commands that print one JSON object per line."""

import json
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "json.md"
_KINDS = {"string": str, "number": int}


def fields_of(command):
    """(types, whether it may be missing) by the name of each field of a line, in the page's order."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## `{command}`\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE)
    found = {}
    for name, told in rows:
        kinds, _, missing = told.partition(", ")
        assert missing in ("", "may be missing")
        types = tuple(type(None) if kind == "null" else _KINDS[kind] for kind in kinds.split(" or "))
        found[name] = types, bool(missing)
    return found


def check_lines(command, text):
    """Assert that each line is as documented, and return the decoded lines."""
    fields = fields_of(command)
    found = [json.loads(line) for line in text.splitlines()]
    for line in found:
        assert list(line) == [name for name, (_, may_miss) in fields.items() if name in line or not may_miss], command
        for name, value in line.items():
            types, _ = fields[name]
            assert type(value) in types, (command, name, value)
    return found


def all_seen(command, lines):
    """Assert that the lines have every documented field, and a null in each that may be null."""
    fields = fields_of(command)
    assert {name for line in lines for name in line} == set(fields)
    nulls = {name for line in lines for name, value in line.items() if value is None}
    assert nulls == {name for name, (types, _) in fields.items() if type(None) in types}
