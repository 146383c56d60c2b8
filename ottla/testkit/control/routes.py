"""What the admin port of a steered broker can be asked: its time, faults, what has passed, epochs. free"""

from collections.abc import Sequence
from typing import Any, Final

from ottla.broker.admin.fields import checked
from ottla.broker.admin.routes import AdminError, AdminRequest, AdminResponse, Route
from ottla.broker.turns import Wait
from ottla.testkit.control.clock import MOST_AHEAD_MS
from ottla.testkit.control.control import Control
from ottla.testkit.control.epochs import forget_ids, preset_epoch
from ottla.testkit.faults.fault import Fault, FaultError, parse_fault
from ottla.testkit.history.passages import passage_to_json

MOST_WAIT_MS: Final = 60_000
MOST_PASSAGES: Final = 1_000
MOST_FAULTS: Final = 1_000
_QUIET_PASSES: Final = 12
_MOST_PASSES: Final = 500
_PASSAGE_US: Final = 20.0
_FAULT_US: Final = 20.0

_ADVANCE: Final = {
    "type": "object",
    "properties": {"ms": {"type": "number", "minimum": 0, "maximum": MOST_AHEAD_MS}},
    "required": ["ms"],
}
_EPOCH: Final = {
    "type": "object",
    "properties": {"epoch": {"type": "integer", "minimum": 0, "maximum": 32_767}},
    "required": ["epoch"],
}


def control_routes(control: Control) -> Sequence[Route]:
    """The routes, for a broker that the control steers."""
    desk = _Desk(control)
    return (
        Route("GET", "/v1/clock", desk.show_clock, "The broker's time, and how far it is from the machine's"),
        Route("POST", "/v1/clock/advance", desk.advance, "Jump ahead by `ms`; all that becomes due runs", _ADVANCE),
        Route("POST", "/v1/clock/freeze", desk.freeze, "Let time stand still"),
        Route("POST", "/v1/clock/resume", desk.resume, "Let time go on from where it stands"),
        Route("POST", "/v1/clock/reset", desk.reset, "The time of the machine again"),
        Route("GET", "/v1/faults", desk.list_faults, "The faults that are planned, with their counters"),
        Route("POST", "/v1/faults", desk.add_fault, "Plan a fault, or a list of them", {"type": ["object", "array"]}),
        Route("DELETE", "/v1/faults", desk.clear_faults, "Take back all faults; they are returned"),
        Route(
            "GET",
            "/v1/faults/{id}",
            desk.show_fault,
            "One fault, when it has struck `hits` times or `wait_ms` have passed",
            query={"hits": "so many strikes are waited for", "wait_ms": "how long at most, up to a minute"},
        ),
        Route("DELETE", "/v1/faults/{id}", desk.remove_fault, "Take a fault back, and let go what it holds"),
        Route("POST", "/v1/faults/{id}/release", desk.release_fault, "Let go what a fault holds"),
        Route(
            "GET",
            "/v1/journal",
            desk.read_journal,
            f"Requests and replies as bytes in base64, up to {MOST_PASSAGES} in the order in which they came",
            query={
                "since": "those behind this number; 0 for the first that is still there",
                "limit": "how many at most",
            },
        ),
        Route("DELETE", "/v1/transactional-ids", desk.forget_ids, "Forget every id that has nothing open"),
        Route("PUT", "/v1/transactional-ids/{id}", desk.preset_epoch, "Give a resting or new id an epoch", _EPOCH),
    )


class _Desk:
    def __init__(self, control: Control) -> None:
        self._control = control

    # ---- time

    async def show_clock(self, request: AdminRequest) -> AdminResponse:
        clock = self._control.clock
        return AdminResponse(body={"now_ms": clock.now_ms(), "ahead_ms": clock.ahead_ms, "frozen": clock.frozen})

    async def advance(self, request: AdminRequest) -> AdminResponse:
        self._control.clock.advance(checked(request.body, _ADVANCE)["ms"])
        await self._settle()
        return await self.show_clock(request)

    async def freeze(self, request: AdminRequest) -> AdminResponse:
        self._control.clock.freeze()
        return await self.show_clock(request)

    async def resume(self, request: AdminRequest) -> AdminResponse:
        self._control.clock.resume()
        return await self.show_clock(request)

    async def reset(self, request: AdminRequest) -> AdminResponse:
        self._control.clock.reset()
        return await self.show_clock(request)

    async def _settle(self) -> None:
        """Let what has become due run, and what follows from it: until the broker has been quiet for some passes."""
        turns = self._control.assembly.broker.turns
        quiet, passes = 0, 0
        while quiet < _QUIET_PASSES and passes < _MOST_PASSES:
            before = turns.events
            wait: Wait[None] = Wait(turns)
            turns.next_turn(lambda wait=wait: wait.wake(None))  # type: ignore[misc]
            await wait
            quiet = quiet + 1 if turns.events <= before + 1 else 0
            passes += 1

    # ---- faults

    async def list_faults(self, request: AdminRequest) -> AdminResponse:
        return AdminResponse(body=await self._all_shown(list(self._control.plan)))

    async def add_fault(self, request: AdminRequest) -> AdminResponse:
        plan = self._control.plan
        given = request.body if isinstance(request.body, list) else [request.body]
        if len(given) + len(plan) > MOST_FAULTS:
            raise AdminError(
                409, f"At most {MOST_FAULTS} faults are planned at once: DELETE /v1/faults takes them back"
            )
        faults = []
        for each in given:
            try:
                faults.append(parse_fault(each))
            except FaultError as error:
                raise AdminError(422, str(error)) from None
            await self._rest()
        added = await self._all_shown([plan.add(fault) for fault in faults])
        return AdminResponse(201, added if isinstance(request.body, list) else added[0])

    async def clear_faults(self, request: AdminRequest) -> AdminResponse:
        return AdminResponse(body=await self._all_shown(self._control.plan.clear()))

    async def show_fault(self, request: AdminRequest) -> AdminResponse:
        fault = self._fault(request)
        hits, wait_ms = _number(request, "hits"), min(_number(request, "wait_ms"), MOST_WAIT_MS)
        if fault.hits < hits and wait_ms:
            await self._struck(fault, hits, wait_ms)
        return AdminResponse(body=self._shown(fault))

    async def remove_fault(self, request: AdminRequest) -> AdminResponse:
        fault = self._fault(request)
        self._control.plan.remove(fault.id)
        return AdminResponse(body=self._shown(fault))

    async def release_fault(self, request: AdminRequest) -> AdminResponse:
        fault = self._fault(request)
        if fault.do != "hold":
            raise AdminError(409, f"Fault {fault.id} holds nothing: it does {fault.do!r}")
        self._control.plan.release(fault.id)
        await self._settle()
        return AdminResponse(body=self._shown(fault))

    def _fault(self, request: AdminRequest) -> Fault:
        given = request.parameters["id"]
        fault = self._control.plan.get(int(given)) if given.isascii() and given.isdigit() else None
        if fault is None:
            raise AdminError(404, f"There is no fault {given:.50}: GET /v1/faults lists them")
        return fault

    async def _all_shown(self, faults: Sequence[Fault]) -> list[dict[str, object]]:
        shown = []
        for fault in faults:
            shown.append(self._shown(fault))
            await self._rest()
        return shown

    async def _rest(self) -> None:
        """One fault was read or shown: others may be due."""
        turns = self._control.assembly.broker.turns
        turns.charge(_FAULT_US)
        await turns.share()

    def _shown(self, fault: Fault) -> dict[str, object]:
        return fault.to_json() | {"held": self._control.plan.held(fault.id)}

    async def _struck(self, fault: Fault, hits: int, wait_ms: int) -> None:
        """Wait until a fault has struck so often, on the machine's clock."""
        control = self._control
        wait: Wait[None] = Wait(control.assembly.broker.turns)
        timer = control.real_clock.call_later(wait_ms, lambda: wait.wake(None))

        def look(struck: Fault) -> None:
            if fault.hits >= hits:
                wait.wake(None)

        def leave() -> None:
            timer.cancel()
            control.plan.watchers.discard(look)

        control.plan.watchers.add(look)
        wait.on_discard = leave
        await wait
        leave()

    # ---- what passed

    async def read_journal(self, request: AdminRequest) -> AdminResponse:
        journal, turns = self._control.journal, self._control.assembly.broker.turns
        shown: list[dict[str, Any]] = []
        most = min(_number(request, "limit", MOST_PASSAGES), MOST_PASSAGES)
        for passage in journal.since(_number(request, "since")):
            if len(shown) == most:
                break
            shown.append(passage_to_json(passage))
            turns.charge(_PASSAGE_US)
            await turns.share()
        return AdminResponse(body={"last": journal.last, "dropped": journal.dropped, "passages": shown})

    # ---- epochs

    async def preset_epoch(self, request: AdminRequest) -> AdminResponse:
        epoch = checked(request.body, _EPOCH)["epoch"]
        state = await preset_epoch(self._control.assembly.broker, request.parameters["id"], epoch)
        return AdminResponse(body={"producer_id": state.producer_id, "producer_epoch": state.producer_epoch})

    async def forget_ids(self, request: AdminRequest) -> AdminResponse:
        return AdminResponse(body={"forgotten": await forget_ids(self._control.assembly.broker)})


def _number(request: AdminRequest, name: str, default: int = 0) -> int:
    given = request.query.get(name, str(default))
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise AdminError(400, f"{name} is a whole number, not {given:.50}")
    return int(given)
