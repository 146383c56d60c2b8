"""Admin port route for the journal of requests and replies. free"""

from collections.abc import Sequence
from typing import Any, Final

from ottla.broker.admin.routes import AdminRequest, AdminResponse, Route
from ottla.broker.turns import Turns
from ottla.testkit.control.journal import Journal
from ottla.testkit.control.query import number
from ottla.testkit.history.passages import passage_to_json

MOST_PASSAGES: Final = 1_000
_PASSAGE_US: Final = 20.0


def journal_routes(journal: Journal, turns: Turns) -> Sequence[Route]:
    """Return the route that reads this journal."""

    async def read_journal(request: AdminRequest) -> AdminResponse:
        shown: list[dict[str, Any]] = []
        most = min(number(request, "limit", MOST_PASSAGES), MOST_PASSAGES)
        for passage in journal.since(number(request, "since")):
            if len(shown) == most:
                break
            shown.append(passage_to_json(passage))
            turns.charge(_PASSAGE_US)
            await turns.yield_if_due()
        return AdminResponse(body={"last": journal.last, "dropped": journal.dropped, "passages": shown})

    return (
        Route(
            "GET",
            "/v1/journal",
            read_journal,
            f"List requests with their replies as bytes in base64, at most {MOST_PASSAGES}, the oldest first",
            query={
                "since": "Requests after this number; 0 begins with the first that is kept.",
                "limit": "The most requests.",
            },
        ),
    )
