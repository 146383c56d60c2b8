"""Requests and replies of an Ottla broker, read from its admin port. shell"""

from ottla.testkit.control.journal import JournalEntry
from ottla.testkit.history.journal_entries import entry_from_json
from ottla.testkit.kit.admin import Admin


def read_entries(admin: Admin, since: int) -> list[JournalEntry]:
    """Return the requests and replies after this number of the journal."""
    entries: list[JournalEntry] = []
    while True:
        page = admin.get(f"/v1/journal?since={since}")
        entries += map(entry_from_json, page["passages"])
        if not page["passages"] or entries[-1].number >= page["last"]:
            return entries
        since = entries[-1].number
