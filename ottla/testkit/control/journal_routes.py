"""Admin port route for the journal of requests and replies. free"""

from collections.abc import Sequence
from typing import Any, Final

from ottla.admin.routes import AdminRequest, AdminResponse, Route
from ottla.broker.turns import Turns
from ottla.testkit.control.journal import Journal
from ottla.testkit.control.query import number
from ottla.testkit.history.journal_entries import entry_to_json

MOST_ENTRIES: Final = 1_000
_ENTRY_US: Final = 20.0


def journal_routes(journal: Journal, turns: Turns) -> Sequence[Route]:
    """Return the route that reads this journal."""

    async def read_journal(request: AdminRequest) -> AdminResponse:
        rows: list[dict[str, Any]] = []
        most = min(number(request, "limit", MOST_ENTRIES), MOST_ENTRIES)
        for entry in journal.since(number(request, "since")):
            if len(rows) == most:
                break
            rows.append(entry_to_json(entry))
            turns.charge(_ENTRY_US)
            await turns.yield_if_due()
        return AdminResponse(body={"last": journal.last, "dropped": journal.dropped, "passages": rows})

    return (
        Route(
            "GET",
            "/v1/journal",
            read_journal,
            f"List requests with their replies as bytes in base64, at most {MOST_ENTRIES}, the oldest first",
            query={
                "since": "Requests after this number; 0 begins with the first that is kept.",
                "limit": "The most requests.",
            },
        ),
    )
