"""Steps of the model as lines of text, and replay of such lines. pure"""

from collections import Counter
from collections.abc import Sequence

from lab.model.clients import HELD, Client, Phase
from lab.model.values import NAMES, Kind, Marker, Message, Request
from lab.model.world import Event, Next, State, World, client_of
from ottla.protocol.errors import ErrorCode


class NoSuchStep(Exception):
    """Raised for a line of a trace that is not possible in its state."""


def describe(world: World, before: State | None, each: Next) -> str:
    """Return a line with the event and its effects that do not follow from it. Different steps have different lines."""
    parts = [describe_event(each.event)]
    after = each.state
    for who in (0, 1):
        if before is None or client_of(before, who) != client_of(after, who):
            parts.append(_client(world.clients.known[client_of(after, who)]))
    old = Counter(before[5]) if before is not None else Counter()
    parts += [
        f"left in the network: {describe_message(world.messages[m])}"
        for m in sorted((Counter(after[5]) - old).elements())
    ]
    coordinator = world.coordinators.known[after[0]]
    if before is not None and before[0] != after[0] and coordinator.state is not None:
        state, pending = coordinator.state, coordinator.transient.pending
        told = f"{state.status.wire_name} {state.producer_id}:{state.producer_epoch}"
        if pending is not None:
            told += f", pending {pending.status.wire_name} {pending.producer_id}:{pending.producer_epoch}"
        parts.append(f"coordinator: {told}")
    return "; ".join(parts)


def describe_event(event: Event) -> str:
    """Describe an event without its effects."""
    if event.name == "crashes":
        kept = f", {event.detail[0]} of {event.detail[1]} records under way survive" if event.detail else ""
        return f"the coordinator crashes{kept}"
    if event.name == "times out":
        return "the transaction times out"
    if event.name == "durable":
        return "the record is durable"
    if event.name == "begins":
        return "both producers send InitProducerId"
    if event.name == "gives up":
        return f"{NAMES[event.who]} gives up waiting"
    assert event.message is not None
    late = " late" if event.name.endswith("late") else ""
    error = ErrorCode(event.detail[0]) if event.detail else ErrorCode.NONE
    answer = f" ({error.name})" if error else ""
    return f"{describe_message(event.message)} arrives{late}{answer}"


def describe_message(message: Message) -> str:
    """Describe a request or a marker in a few words."""
    if isinstance(message, Marker):
        outcome = "commit" if message.commit else "abort"
        return (
            f"{outcome} marker {message.producer_id}:{message.epoch} of coordinator epoch {message.coordinator_epoch} "
            f"for partition {message.place}"
        )
    return f"{NAMES[message.client]}{message.txn}'s {_request(message)}"


def replay(world: World, lines: Sequence[str]) -> State:
    """Replay a trace and return its last state. Raises NoSuchStep, or the Violation of a step."""
    found = next((each for each in world.first() if describe(world, None, each) == lines[0]), None)
    for line in lines[1:]:
        if found is None:
            break
        before = found
        steps = world.successors(before.state, before.left)
        found = next((each for each in steps if describe(world, before.state, each) == line), None)
    if found is None:
        raise NoSuchStep(f"nothing here is: {line}")
    return found.state


def _request(request: Request) -> str:
    producer = f"{request.producer_id}:{request.epoch}"
    if request.kind is Kind.INIT:
        return "InitProducerId" if request.epoch < 0 else f"InitProducerId expecting {producer}"
    if request.kind is Kind.ADD:
        return f"AddPartitionsToTxn {producer}"
    if request.kind is Kind.PRODUCE:
        return f"Produce {producer} sequence {request.sequence} to partition {request.place}"
    return f"EndTxn {'commit' if request.commit else 'abort'} {producer}"


def _client(client: Client) -> str:
    name = NAMES[client.who]
    if client.phase is Phase.DONE:
        return f"{name} is done ({client.fates or 'nothing'})"
    if HELD in client.slots:
        return f"{name} waits for its answer"
    doing = "END commit" if client.phase is Phase.END and client.commit else client.phase.name
    slots = "".join("?" if slot == 0 else "+" for slot in client.slots)
    return f"{name}{client.txn} is at {doing} {slots} as {client.producer_id}:{client.epoch}"
