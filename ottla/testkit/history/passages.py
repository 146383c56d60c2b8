"""Conversion of journal entries to and from JSON, for the admin port. pure"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from ottla.testkit.control.journal import Passage


def passage_to_json(passage: Passage) -> dict[str, Any]:
    """Return a journal entry as JSON, with its frames in base64."""
    return {
        "number": passage.number,
        "began_ms": passage.began_ms,
        "ended_ms": passage.ended_ms,
        "ended_behind": passage.ended_behind,
        "peer": passage.peer,
        "request": b64encode(passage.request).decode(),
        "reply": None if passage.reply is None else b64encode(passage.reply).decode(),
        "closed": passage.reason,
        "faults": passage.faults,
    }


def passage_from_json(given: Mapping[str, Any]) -> Passage:
    """Return the journal entry that `passage_to_json` has converted."""
    passage = Passage(given["number"], given["began_ms"], given["peer"], b64decode(given["request"]))
    passage.ended_ms = given["ended_ms"]
    passage.ended_behind = given["ended_behind"]
    passage.reply = None if given["reply"] is None else b64decode(given["reply"])
    passage.reason = given["closed"]
    passage.faults = list(given["faults"])
    return passage
