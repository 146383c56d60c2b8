"""Stories that damage the data, for `ottla demo --keep`: a torn and a hanging transaction. free"""

import contextlib
from typing import Final

from ottla.client import transaction
from ottla.demo.clients import DemoClients
from ottla.demo.commands import quote_ottla
from ottla.demo.stories import ACCOUNT, AUDIT_LOG, LEDGER
from ottla.testkit.kit.by_hand import ProducerByHand
from ottla.testkit.kit.wire import Wire

# Without it, the broker takes a late batch, as Kafka before 3.6 did.
UNVERIFIED: Final = ("transaction.partition.verification.enable=false",)
TORN_ID, LATE_ID = "order-processor-02", "order-processor-03"
_REFUSED: Final = 1


def tear_a_transaction(clients: DemoClients) -> None:
    screen = clients.screen
    screen.section(
        "An administrator tears a transaction",
        f"{TORN_ID} has written to {LEDGER} and {AUDIT_LOG}, and is about to commit. An administrator wants to free",
        f"the readers of {AUDIT_LOG}. ottla txn abort refuses this; a marker that is written by hand is not refused.",
    )
    producer = clients.producer(TORN_ID)
    with transaction(producer), contextlib.closing(Wire(lambda: clients.broker.bootstrap)) as admin:
        producer.send(LEDGER, key=ACCOUNT, value="-5.00").get(timeout=10)
        producer.send(AUDIT_LOG, key=ACCOUNT, value="-5.00 by order 5").get(timeout=10)
        screen.step(TORN_ID, "writes to both")
        (torn,) = admin.open_producers(AUDIT_LOG, [0])
        place = AUDIT_LOG, "0", str(torn.first_offset)
        done = quote_ottla(screen, "txn", "abort", *place, "--yes", "-b", clients.broker.bootstrap)
        screen.claim(done.returncode == _REFUSED and "tear" in done.stdout, "ottla txn abort refuses to tear it")
        admin.abort_hanging(torn)
        screen.step("administrator", f"writes the abort marker to {AUDIT_LOG} by hand", style="yellow")
    screen.step(TORN_ID, "commits, and gets no error", style="green")
    screen.line()
    in_ledger = "-5.00" in [record.value for record in clients.read(LEDGER)]
    in_audit_log = "-5.00 by order 5" in [record.value for record in clients.read(AUDIT_LOG)]
    screen.claim(in_ledger and not in_audit_log, f"{LEDGER} shows the movement, {AUDIT_LOG} never will")


def let_a_batch_come_late(clients: DemoClients) -> None:
    screen = clients.screen
    screen.section(
        "A batch comes late",
        f"{LATE_ID} has committed. A batch of this transaction, which the network delayed, arrives after that. This",
        "broker takes it, as Kafka before 3.6 did: transaction.partition.verification.enable=false.",
    )
    with contextlib.closing(Wire(lambda: clients.broker.bootstrap)) as wire:
        late = ProducerByHand(wire, LATE_ID, version=1)
        errors = [late.send(LEDGER, b"+7.00", partition=1), late.commit()]
        screen.step(LATE_ID, f"writes to {LEDGER}-1, and commits", style="green")
        errors.append(late.produce(LEDGER, b"+7.00 late", partition=1))
        screen.step("late batch", "begins a transaction that no coordinator knows", style="yellow")
        (hanging,) = wire.open_producers(LEDGER, [1])
    screen.line()
    screen.claim(not any(errors), "the broker refuses nothing")
    done = quote_ottla(screen, "txn", "why", "-b", clients.broker.bootstrap)
    command = f"ottla txn abort {LEDGER} 1 {hanging.first_offset}"
    screen.claim(LATE_ID in done.stdout and "forgotten" in done.stdout, f"it names {LATE_ID}: no coordinator ends it")
    screen.claim(command in done.stdout, f"it prints the command that does: {command}")


DAMAGING_STORIES = (tear_a_transaction, let_a_batch_come_late)
