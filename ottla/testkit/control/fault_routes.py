"""Admin port routes for the faults of a broker or a proxy. free"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from ottla.admin.routes import AdminError, AdminRequest, AdminResponse, Route
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns, Wait
from ottla.testkit.control.query import number
from ottla.testkit.faults.fault import Fault, FaultError, parse_fault
from ottla.testkit.faults.plan import Plan

MOST_WAIT_MS: Final = 60_000
MOST_FAULTS: Final = 1_000
_FAULT_US: Final = 20.0

Settle = Callable[[], Coroutine[Wait[Any], None, None]]
"""Waits until the released requests have continued."""


def fault_routes(plan: Plan, turns: Turns, clock: Clock, settle: Settle | None = None) -> Sequence[Route]:
    """Return the routes. They run on the event loop of the faults; `clock` is the machine's clock."""
    api = _FaultHandlers(plan, turns, clock, settle)
    return (
        Route("GET", "/v1/faults", api.list_faults, "List the planned faults with their counters"),
        Route("POST", "/v1/faults", api.add_fault, "Plan a fault, or a list of them", {"type": ["object", "array"]}),
        Route("DELETE", "/v1/faults", api.clear_faults, "Remove all faults, and return them"),
        Route(
            "GET",
            "/v1/faults/{id}",
            api.show_fault,
            "Show a fault after it has fired `hits` times or `wait_ms` have passed",
            query={"hits": "The hits to wait for.", "wait_ms": "The longest wait, at most a minute."},
        ),
        Route("DELETE", "/v1/faults/{id}", api.remove_fault, "Remove a fault, and release what it holds"),
        Route("POST", "/v1/faults/{id}/release", api.release_fault, "Release what a fault holds"),
    )


class _FaultHandlers:
    def __init__(self, plan: Plan, turns: Turns, clock: Clock, settle: Settle | None) -> None:
        self._plan = plan
        self._turns = turns
        self._clock = clock
        self._settle = settle

    async def list_faults(self, request: AdminRequest) -> AdminResponse:
        return AdminResponse(body=await self._show_all(list(self._plan)))

    async def add_fault(self, request: AdminRequest) -> AdminResponse:
        plan = self._plan
        given = request.body if isinstance(request.body, list) else [request.body]
        if len(given) + len(plan) > MOST_FAULTS:
            raise AdminError(
                409, f"At most {MOST_FAULTS} faults can be planned at once: DELETE /v1/faults removes them"
            )
        faults = []
        for each in given:
            try:
                fault = parse_fault(each)
                plan.check(fault)
            except FaultError as error:
                raise AdminError(422, str(error)) from None
            faults.append(fault)
            await self._yield()
        added = await self._show_all([plan.add(fault) for fault in faults])
        return AdminResponse(201, added if isinstance(request.body, list) else added[0])

    async def clear_faults(self, request: AdminRequest) -> AdminResponse:
        return AdminResponse(body=await self._show_all(self._plan.clear()))

    async def show_fault(self, request: AdminRequest) -> AdminResponse:
        fault = self._fault(request)
        hits, wait_ms = number(request, "hits"), min(number(request, "wait_ms"), MOST_WAIT_MS)
        if fault.hits < hits and wait_ms:
            await self._wait_hits(fault, hits, wait_ms)
        return AdminResponse(body=self._plan.show(fault))

    async def remove_fault(self, request: AdminRequest) -> AdminResponse:
        fault = self._fault(request)
        self._plan.remove(fault.id)
        return AdminResponse(body=self._plan.show(fault))

    async def release_fault(self, request: AdminRequest) -> AdminResponse:
        fault = self._fault(request)
        if fault.do != "hold":
            raise AdminError(409, f"Fault {fault.id} holds nothing: it does {fault.do!r}")
        self._plan.release(fault.id)
        if self._settle is not None:
            await self._settle()
        return AdminResponse(body=self._plan.show(fault))

    def _fault(self, request: AdminRequest) -> Fault:
        given = request.parameters["id"]
        fault = self._plan.get(int(given)) if given.isascii() and given.isdigit() else None
        if fault is None:
            raise AdminError(404, f"There is no fault {given:.50}: GET /v1/faults lists them")
        return fault

    async def _show_all(self, faults: Sequence[Fault]) -> list[dict[str, object]]:
        shown = []
        for fault in faults:
            shown.append(self._plan.show(fault))
            await self._yield()
        return shown

    async def _yield(self) -> None:
        """Charge the turn for one fault, and yield to other work when the turn is used up."""
        self._turns.charge(_FAULT_US)
        await self._turns.yield_if_due()

    async def _wait_hits(self, fault: Fault, hits: int, wait_ms: int) -> None:
        """Wait until the fault has fired `hits` times, at most `wait_ms` of the machine's clock."""
        plan = self._plan
        wait: Wait[None] = Wait(self._turns)
        timer = self._clock.call_later(wait_ms, lambda: wait.wake(None))

        def wake_on_hits(fired: Fault) -> None:
            if fault.hits >= hits:
                wait.wake(None)

        def leave() -> None:
            timer.cancel()
            plan.watchers.discard(wake_on_hits)

        plan.watchers.add(wake_on_hits)
        wait.on_discard = leave
        await wait
        leave()
