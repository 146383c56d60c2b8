"""A request, and what its handler replies. pure"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.memory import ReplyReservation, Reservation
from ottla.broker.quotas.managers import ControllerMutationQuota
from ottla.broker.quotas.quotas import RequestQuota
from ottla.broker.security.session import Session
from ottla.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.broker.outbox import Part


class Request:
    """A request: its header, its decoded body, its session, and its memory reservation if it is large."""

    __slots__ = ("api_key", "api_version", "body", "client_id", "correlation_id", "quota", "reservation", "session")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
        session: Session,
        body: Any,
        reservation: Reservation | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.reservation = reservation
        self.session = session
        self.quota: RequestQuota | None = None
        """The use of the client's quotas, or None if no client has quotas."""

    @property
    def peer(self) -> str:
        """The address of the client, HOST:PORT."""
        return self.session.peer

    @property
    def about(self) -> dict[str, object]:
        """The fields of a log line: API, version, client."""
        try:
            api = ApiKey(self.api_key).title
        except ValueError:
            api = str(self.api_key)
        return {"api": api, "version": self.api_version, "client_id": self.client_id, "peer": self.peer}

    def mutation_quota(self, first_strict_version: int) -> ControllerMutationQuota | None:
        """Return the quota for created and deleted partitions (KIP-599), or None without a limit. Versions before the
        first strict one know no error for it and are only throttled."""
        quota = self.quota
        return None if quota is None else quota.controller_mutation(strict=self.api_version >= first_strict_version)

    def forget_body(self) -> None:
        """Drop the body and release its memory, before the handler waits for other clients."""
        self.body = None
        self.release()

    def release(self) -> None:
        """Release the memory reservation."""
        reservation, self.reservation = self.reservation, None
        if reservation is not None:
            reservation.release()


class Encoded(NamedTuple):
    """A reply that its handler encoded: the buffers of one frame, in order, size prefix included.

    `reservation` is the memory reservation of large buffers. It is released when they are sent.
    """

    buffers: "Sequence[Part]"
    reservation: ReplyReservation | None = None
    error_code: int = 0
    """The error of the whole request, if the API has one."""
    closes: str = ""
    """The reason why the connection is closed after this reply; empty if it stays open."""
    row_errors: "RowErrors" = ()
    """The errors of its rows, for `Api.report_rows`; empty if no row has one."""


class Close(NamedTuple):
    """No reply: the connection is closed and the reason is logged (a failed Produce with acks=0)."""

    reason: str
    row_errors: "RowErrors" = ()


class NoReply:
    """Nothing is sent and the connection stays open (Produce with acks=0)."""


NO_REPLY: Final = NoReply()

Reply = Encoded | Close | NoReply

RowErrors = Mapping[int, int] | Sequence[Any]
"""The number of rows by error code, in the order of the first row of each; for Produce, the rows with errors."""
