"""Conversion of journal entries to and from JSON, for the admin port. pure"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from ottla.testkit.control.journal import JournalEntry


def entry_to_json(entry: JournalEntry) -> dict[str, Any]:
    """Return a journal entry as JSON, with its frames in base64."""
    return {
        "number": entry.number,
        "began_ms": entry.began_ms,
        "ended_ms": entry.ended_ms,
        "ended_behind": entry.ended_after,
        "peer": entry.peer,
        "request": b64encode(entry.request).decode(),
        "reply": None if entry.reply is None else b64encode(entry.reply).decode(),
        "closed": entry.reason,
        "faults": entry.faults,
    } | ({} if entry.broker is None else {"broker": entry.broker})


def entry_from_json(given: Mapping[str, Any]) -> JournalEntry:
    """Return the journal entry that `entry_to_json` has converted."""
    request, broker = b64decode(given["request"]), given.get("broker")
    entry = JournalEntry(given["number"], given["began_ms"], given["peer"], request, broker)
    entry.ended_ms = given["ended_ms"]
    entry.ended_after = given["ended_behind"]
    entry.reply = None if given["reply"] is None else b64decode(given["reply"])
    entry.reason = given["closed"]
    entry.faults = list(given["faults"])
    return entry
