"""Conversion of recorded requests and replies into events for people and operations for the checker. pure

The input is the `entries` of the journal of an Ottla broker or a proxy:

    events(entries)           -> one JSON object for each request and its reply
    checker_lines(entries)    -> the lines that `ottla check-history` compares with the logs
"""

from ottla.testkit.history.events import events
from ottla.testkit.history.journal_entries import entry_from_json, entry_to_json
from ottla.testkit.history.lines import checker_lines

__all__ = ["checker_lines", "entry_from_json", "entry_to_json", "events"]
