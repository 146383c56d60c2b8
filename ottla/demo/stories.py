"""Stories of the demo, one function each. They claim only checked facts. free"""

from collections import Counter

from ottla.client import ProducerFenced, transaction
from ottla.client.transaction import view_of
from ottla.demo.clients import DemoClients
from ottla.testkit.proxying import ProxyServer

LEDGER, AUDIT_LOG, STOCK = "financial-ledger", "audit-log", "stock-deductions"
ORDERS, SETTLEMENTS, SHIPMENTS = "orders", "settlements", "shipments"
PAYMENTS, PAYMENTS_AT_LEAST_ONCE = "payments", "payments-at-least-once"
TOPICS = {
    LEDGER: 2,
    AUDIT_LOG: 1,
    STOCK: 1,
    PAYMENTS: 1,
    PAYMENTS_AT_LEAST_ONCE: 1,
    ORDERS: 2,
    SETTLEMENTS: 1,
    SHIPMENTS: 1,
}
ACCOUNT = "Account-123"
HANGING_ID = "warehouse-sync"
_HANGING_TIMEOUT_MS = 600_000


class InsufficientFunds(Exception):
    """Error that the application raises in the first story."""


def _epoch(producer: object) -> str:
    producer_id, epoch = view_of(producer).epoch
    return f"producer id {producer_id}, epoch {epoch}"


def show_atomic_writes(clients: DemoClients) -> None:
    screen = clients.screen
    screen.section(
        "Both or neither",
        f"order-processor-01 moves money for {ACCOUNT}. Each movement is a record in {LEDGER} and one in {AUDIT_LOG},",
        "in one transaction. The third overdraws the account: the block raises, and the transaction is aborted.",
    )
    producer = clients.producer("order-processor-01")
    screen.step("order-processor-01", f"init_transactions(): {_epoch(producer)}")
    for number, (amount, balance) in enumerate([("+100.00", 100), ("-40.00", 60), ("-90.00", -30), ("-10.00", 50)], 1):
        try:
            with transaction(producer):
                producer.send(LEDGER, key=ACCOUNT, value=amount)
                producer.send(AUDIT_LOG, key=ACCOUNT, value=f"{amount} by order {number}")
                if balance < 0:
                    producer.flush()  # the records are in the log: an abort does not remove them
                    raise InsufficientFunds(f"{ACCOUNT} would be at {balance}.00")
            screen.step(f"transaction {number}", f"{amount:>8}  committed", style="green")
        except InsufficientFunds as error:
            screen.step(f"transaction {number}", f"{amount:>8}  aborted: {error}", style="yellow")
    screen.line()
    ledger = [record.value for record in clients.read(LEDGER)]
    audit = [record.value for record in clients.read(AUDIT_LOG)]
    written = len(clients.read(AUDIT_LOG, "read_uncommitted"))
    screen.claim(ledger == ["+100.00", "-40.00", "-10.00"], f"{LEDGER} shows {', '.join(ledger)}")
    same = [line.split()[0] for line in audit] == ledger
    screen.claim(same and written == 4, f"{AUDIT_LOG} shows the same three; the aborted one is in the log only")


def show_isolation_levels(clients: DemoClients) -> None:
    screen = clients.screen
    screen.section(
        "What readers see",
        f"{STOCK} gets three records: one committed, one aborted, one in a transaction that is still open.",
        "Both kinds of consumer read the same log.",
    )
    one, other = clients.producer("stock-keeper"), clients.producer("stock-counter")
    with transaction(one):
        one.send(STOCK, key=ACCOUNT, value="committed")
    try:
        with transaction(one):
            one.send(STOCK, key=ACCOUNT, value="aborted").get(timeout=10)
            raise InsufficientFunds
    except InsufficientFunds:
        pass
    with transaction(one):
        one.send(STOCK, key=ACCOUNT, value="open").get(timeout=10)
        seen = _fates(clients)
        screen.bars(["open", "aborted", "committed"], list(seen.items()))
        screen.claim(seen["read_uncommitted"] == (1, 1, 1), "read_uncommitted sees everything: 1 1 1")
        screen.claim(seen["read_committed"] == (0, 0, 1), "read_committed sees only the committed record: 0 0 1")
        with transaction(other):
            other.send(STOCK, key=ACCOUNT, value="committed")
        behind = _fates(clients)["read_committed"]
        screen.step("stock-counter", "commits one more record, after the open transaction")
        screen.claim(behind == (0, 0, 1), "it stays hidden: the last stable offset waits for the open transaction")
    after = _fates(clients)["read_committed"]
    screen.step("stock-keeper", "commits the open transaction", style="green")
    screen.claim(after == (1, 0, 2), "now both are visible, in the order of the log; the aborted one never appears")


def _fates(clients: DemoClients) -> dict[str, tuple[int, int, int]]:
    seen = {}
    for isolation_level in ("read_uncommitted", "read_committed"):
        counts = Counter(record.value for record in clients.read(STOCK, isolation_level))
        seen[isolation_level] = (counts["open"], counts["aborted"], counts["committed"])
    return seen


def show_a_retry(clients: DemoClients) -> None:
    screen = clients.screen
    screen.section(
        "A lost acknowledgement",
        "A proxy between producer and broker drops one answer to Produce: the record is in the log, the producer",
        "does not know, and sends it again. The same happens to a plain producer and to an idempotent one.",
    )
    rows: list[tuple[str, int, int, int]] = []
    with ProxyServer(clients.broker.bootstrap) as proxy:
        for guarantee, topic, idempotent in (
            ("at least once", PAYMENTS_AT_LEAST_ONCE, False),
            ("exactly once", PAYMENTS, True),
        ):
            producer = clients.producer(bootstrap=proxy.bootstrap, enable_idempotence=idempotent, retries=5)
            producer.send(topic, key=ACCOUNT, value="payment 1").get(timeout=10)
            before = proxy.requests["Produce"]
            fault = proxy.add(at="reply", api="Produce", do="drop")
            metadata = producer.send(topic, key=ACCOUNT, value="payment 2").get(timeout=10)
            sent = proxy.requests["Produce"] - before
            producer.send(topic, key=ACCOUNT, value="payment 3").get(timeout=10)
            lost = fault.hits > 0 and sent == 2
            screen.claim(lost, f"{guarantee}: the answer to payment 2 was lost, and payment 2 was sent again")
            copies = Counter(record.value for record in clients.read(topic, "read_uncommitted"))["payment 2"]
            rows.append((guarantee, sent, copies, metadata.offset))
    screen.table(["guarantee", "sent", "in the log", "offset in the answer"], rows)
    screen.claim(rows[0][2] == 2, "without producer id and sequence the retry is a second payment")
    screen.claim(rows[1][2] == 1, "with them the broker knows the batch and answers with the offset it already has")


def show_fencing(clients: DemoClients) -> None:
    screen = clients.screen
    screen.section(
        "A second instance takes over",
        "The first instance of settlement-01 has written and not committed when a second one starts with the same",
        "transactional id. The first one then tries to continue.",
    )
    first = clients.producer("settlement-01")
    screen.step("first instance", f"writes to {LEDGER}: {_epoch(first)}")
    fenced: ProducerFenced | None = None
    try:
        with transaction(first):
            first.send(LEDGER, key=ACCOUNT, value="zombie").get(timeout=10)
            second = clients.producer("settlement-01")
            screen.step("second instance", f"init_transactions(): {_epoch(second)}")
            with transaction(second):
                second.send(LEDGER, key=ACCOUNT, value="+5.00")
            screen.step("second instance", "writes and commits", style="green")
            first.send(AUDIT_LOG, key=ACCOUNT, value="zombie")
    except ProducerFenced as error:
        fenced = error
        screen.step("first instance", f"ProducerFenced: {str(error).split('. ')[0]}.", style="yellow")
    screen.line()
    screen.claim(fenced is not None and not fenced.retriable, "the first instance gets an error that is not retriable")
    values = [record.value for record in clients.read(LEDGER)]
    trail = [record.value for record in clients.read(AUDIT_LOG, "read_uncommitted")]
    alone = "+5.00" in values and "zombie" not in values
    screen.claim(alone, f"{LEDGER} has the second instance's record and not the first's")
    screen.claim("zombie" not in trail, f"no record of the zombie reached {AUDIT_LOG}")


def show_consume_transform_produce(clients: DemoClients) -> None:
    screen = clients.screen
    screen.section(
        "Consume, transform, produce",
        f"A loop reads {ORDERS}, writes {SETTLEMENTS}, and commits its positions in the same transaction. It fails in",
        "the middle once: the consumer goes back to the committed positions, and the loop repeats the records.",
    )
    source = clients.producer()
    for number in range(1, 9):
        source.send(ORDERS, key=ACCOUNT, value=f"order {number}", partition=number % 2)
    source.flush()
    producer, consumer = clients.producer("settler-01"), clients.consumer(ORDERS, "settlement")
    already = len(clients.read(SETTLEMENTS))
    settled, failed, idle = 0, False, 0
    while settled < 8 and idle < 20:
        records = [record for batch in consumer.poll(timeout_ms=500, max_records=3).values() for record in batch]
        idle += not records
        try:
            with transaction(producer, consumer=consumer):
                for record in records:
                    producer.send(SETTLEMENTS, key=ACCOUNT, value=f"settled {record.value.decode()}").get(timeout=10)
                if settled and records and not failed:
                    failed = True
                    raise InsufficientFunds("the process fails")
            settled += len(records)
            if records:
                screen.step(
                    "settler-01", f"{len(records)} orders settled, positions committed with them", style="green"
                )
        except InsufficientFunds as error:
            screen.step("settler-01", f"{len(records)} orders written, then {error}: aborted, rewound", style="yellow")
    screen.line()
    done = [record.value for record in clients.read(SETTLEMENTS)][already:]
    tries = len(clients.read(SETTLEMENTS, "read_uncommitted")) - already
    expected = sorted(f"settled order {number}" for number in range(1, 9))
    screen.claim(sorted(done) == expected, f"8 orders, {len(done)} settlements, each exactly once")
    screen.claim(failed and tries > 8, f"the log holds {tries}: read_committed readers skip the aborted ones")
    ends = consumer.end_offsets(consumer.assignment())
    behind = sum(ends[partition] - (consumer.committed(partition) or 0) for partition in ends)
    screen.claim(behind == 0 and len(ends) == 2, "the group's committed positions are at the end of both partitions")


def leave_one_open(clients: DemoClients) -> None:
    screen = clients.screen
    screen.section(
        "One transaction is left hanging",
        f"{HANGING_ID} writes to {SHIPMENTS} and then stops. Its timeout is ten minutes.",
        "It holds back the committed record of another producer.",
    )
    hanging, healthy = (
        clients.producer(HANGING_ID, transaction_timeout_ms=_HANGING_TIMEOUT_MS),
        clients.producer("shipper-01"),
    )
    before = len(clients.read(SHIPMENTS))
    hanging.begin_transaction()
    hanging.send(SHIPMENTS, key=ACCOUNT, value="forgotten").get(timeout=10)
    with transaction(healthy):
        healthy.send(SHIPMENTS, key=ACCOUNT, value="shipped")
    screen.step(HANGING_ID, f"begins, writes, stops: {_epoch(hanging)}", style="yellow")
    screen.step("shipper-01", "writes and commits", style="green")
    screen.line()
    visible = len(clients.read(SHIPMENTS)) - before
    written = len(clients.read(SHIPMENTS, "read_uncommitted")) - before
    screen.claim(visible == 0 and written >= 2, "read_committed consumers get nothing, without any error")


STORIES = (
    show_atomic_writes,
    show_isolation_levels,
    show_a_retry,
    show_fencing,
    show_consume_transform_produce,
    leave_one_open,
)
