"""What has passed between clients and brokers, told: as events for people, as operations for the checker. pure

`passages` of a journal (ours or that of a proxy) go in:

    events(passages)          -> one JSON object for each request and its reply
    checker_lines(passages)   -> the lines that `ottla check-history` judges against the logs
"""

from ottla.testkit.history.events import events
from ottla.testkit.history.lines import checker_lines
from ottla.testkit.history.passages import passage_from_json, passage_to_json

__all__ = ["checker_lines", "events", "passage_from_json", "passage_to_json"]
