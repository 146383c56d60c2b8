"""Requests and replies of an Ottla broker, read from its admin port. shell"""

from ottla.testkit.control.journal import Passage
from ottla.testkit.history.passages import passage_from_json
from ottla.testkit.kit.admin import Admin


def read_passages(admin: Admin, since: int) -> list[Passage]:
    """Return the requests and replies after this number of the journal."""
    passages: list[Passage] = []
    while True:
        page = admin.get(f"/v1/journal?since={since}")
        passages += map(passage_from_json, page["passages"])
        if not page["passages"] or passages[-1].number >= page["last"]:
            return passages
        since = passages[-1].number
