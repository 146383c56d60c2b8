"""Admin port routes for the test control of a broker: clock, faults, journal, epochs. free"""

from collections.abc import Callable, Sequence
from typing import Final

from ottla.admin.fields import an_object
from ottla.admin.routes import AdminHandler, AdminRequest, AdminResponse, Route
from ottla.broker.deadline import sleep
from ottla.broker.turns import Wait
from ottla.testkit.control.clock import MOST_AHEAD_MS
from ottla.testkit.control.cluster_routes import cluster_routes
from ottla.testkit.control.control import Control
from ottla.testkit.control.epochs import forget_ids, preset_epoch
from ottla.testkit.control.fault_routes import fault_routes
from ottla.testkit.control.journal_routes import journal_routes

_QUIET_PASSES: Final = 12
_MOST_PASSES: Final = 500
_ANSWER_MS: Final = 1.0
"""The time between two looks for the answers of other brokers."""

_ADVANCE: Final = an_object({"ms": {"type": "number", "minimum": 0, "maximum": MOST_AHEAD_MS}}, required=["ms"])
_EPOCH: Final = an_object({"epoch": {"type": "integer", "minimum": 0, "maximum": 32_767}}, required=["epoch"])


def control_routes(control: Control) -> Sequence[Route]:
    """Return the routes for the broker of this control."""
    api = _ControlHandlers(control)
    return (
        Route("GET", "/v1/clock", api.show_clock, "Show the broker's time, and how far it is ahead of the machine's"),
        Route("POST", "/v1/clock/advance", api.advance, "Advance the time by `ms`, and run what becomes due", _ADVANCE),
        Route("POST", "/v1/clock/freeze", api.show_after(control.clock.freeze), "Stop the broker's time"),
        Route(
            "POST",
            "/v1/clock/resume",
            api.show_after(control.clock.resume),
            "Resume the broker's time where it was stopped",
        ),
        Route("POST", "/v1/clock/reset", api.show_after(control.clock.reset), "Return to the machine's time"),
        *fault_routes(control.plan, control.assembly.broker.turns, control.real_clock, api.run_until_idle),
        *cluster_routes(control.cluster, control.plan),
        *journal_routes(control.journal, control.assembly.broker.turns),
        Route(
            "DELETE",
            "/v1/transactional-ids",
            api.forget_ids,
            "Forget every transactional id without an open transaction",
        ),
        Route(
            "DELETE",
            "/v1/transactional-ids/{id}",
            api.forget_id,
            "Forget a transactional id without an open transaction",
        ),
        Route(
            "PUT",
            "/v1/transactional-ids/{id}",
            api.preset_epoch,
            "Set the epoch of an id without an open transaction",
            _EPOCH,
        ),
    )


class _ControlHandlers:
    def __init__(self, control: Control) -> None:
        self._control = control

    # ---- time

    async def show_clock(self, request: AdminRequest) -> AdminResponse:
        clock = self._control.clock
        return AdminResponse(body={"now_ms": clock.now_ms(), "ahead_ms": clock.ahead_ms, "frozen": clock.frozen})

    async def advance(self, request: AdminRequest) -> AdminResponse:
        self._control.clock.advance(request.body["ms"])
        await self.run_until_idle()
        return await self.show_clock(request)

    def show_after(self, change: Callable[[], None]) -> AdminHandler:
        """Return a handler that changes the clock and shows it."""

        async def handle(request: AdminRequest) -> AdminResponse:
            change()
            return await self.show_clock(request)

        return handle

    async def run_until_idle(self) -> None:
        """Run the due work and all work that follows from it, until the broker is idle for some passes.

        It is not idle while the answer of another broker to a marker is on its way.
        """
        broker = self._control.assembly.broker
        turns, sinks = broker.turns, [each.transactions.sink for each in broker.brokers]
        quiet, passes = 0, 0
        while quiet < _QUIET_PASSES and passes < _MOST_PASSES:
            before = turns.events
            wait: Wait[None] = Wait(turns)
            turns.next_turn(lambda wait=wait: wait.wake(None))  # type: ignore[misc]
            await wait
            quiet = quiet + 1 if turns.events <= before + 1 else 0
            if any(each.awaits_answers for each in sinks):
                quiet = 0
                await sleep(turns, self._control.real_clock, _ANSWER_MS)
            passes += 1

    # ---- epochs

    async def preset_epoch(self, request: AdminRequest) -> AdminResponse:
        epoch = request.body["epoch"]
        state = await preset_epoch(self._control.assembly.broker, request.parameters["id"], epoch)
        return AdminResponse(body={"producer_id": state.producer_id, "producer_epoch": state.producer_epoch})

    async def forget_ids(self, request: AdminRequest) -> AdminResponse:
        return AdminResponse(body={"forgotten": await forget_ids(self._control.assembly.broker)})

    async def forget_id(self, request: AdminRequest) -> AdminResponse:
        forgotten = await forget_ids(self._control.assembly.broker, [request.parameters["id"]])
        return AdminResponse(body={"forgotten": forgotten})
