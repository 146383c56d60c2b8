"""Conversion of recorded requests and replies into events for people and operations for the checker. pure

The input is the `passages` of the journal of an Ottla broker or a proxy:

    events(passages)          -> one JSON object for each request and its reply
    checker_lines(passages)   -> the lines that `ottla check-history` compares with the logs
"""

from ottla.testkit.history.events import events
from ottla.testkit.history.lines import checker_lines
from ottla.testkit.history.passages import passage_from_json, passage_to_json

__all__ = ["checker_lines", "events", "passage_from_json", "passage_to_json"]
