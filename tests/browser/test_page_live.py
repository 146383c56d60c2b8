"""The page of a broker that is served, as its producers, readers and groups make it."""

import pytest

from tests.browser.test_page import BARS, lanes_of, text_of


@pytest.fixture
def page(ottla_broker, tab):
    """Open the page, with as much time in it as a busy machine may need."""

    def go(fragment=""):
        tab.open(f"{ottla_broker.admin().url}/#span=300000&{fragment}")
        tab.until("document.querySelector('#connection').dataset.state === 'live'")
        return tab

    return go


def test_a_transaction_is_drawn_from_its_first_batch_to_its_last_marker(
    page, kafka_txn_producer, kafka_topic, ottla_faults
):
    held = ottla_faults.on_marker(transactional_id="payroll").hold()
    tab = page()
    producer = kafka_txn_producer("payroll")
    producer.begin_transaction()
    producer.send(kafka_topic, b"paid").get()
    tab.until("document.querySelectorAll('.lane[data-id=payroll] .bar.open').length === 1")
    producer.commit_transaction()
    tab.until("document.querySelectorAll('.lane[data-id=payroll] .bar.prepared').length === 1")
    held.release()
    tab.until("document.querySelectorAll('.lane[data-id=payroll] .bar.committed').length === 1")
    producer.begin_transaction()
    producer.send(kafka_topic, b"paid twice").get()
    producer.abort_transaction()
    aborted = ".lane[data-id=payroll] .bar.aborted, .lane[data-id=payroll] .bar.run .part.aborted"  # if it is near
    tab.until(f"document.querySelectorAll('{aborted}').length === 1")
    tab.until("document.querySelector('[data-figure=\"open now\"] dd').textContent === '0'")


def test_a_producer_that_is_fenced_leaves_a_mark(page, kafka_txn_producer, kafka_topic):
    tab = page()
    zombie = kafka_txn_producer("twice")
    zombie.begin_transaction()
    zombie.send(kafka_topic, b"paid").get()
    kafka_txn_producer("twice")
    tab.until("document.querySelectorAll('.lane[data-id=twice] .mark.fenced').length > 0")
    tab.until("document.querySelectorAll('.lane[data-id=twice] .bar.aborted').length === 1")


def test_a_held_partition_is_explained_by_its_open_transaction(page, kafka_txn_producer, kafka_topic):
    producer = kafka_txn_producer("stuck")
    producer.begin_transaction()
    for _ in range(3):
        producer.send(kafka_topic, b"paid").get()
    tab = page("tab=partitions")
    tab.until(f"document.querySelector('.partition[data-name=\"{kafka_topic}-0\"].held') !== null")
    tab.point(".partition .row", click=True)
    tab.until("document.querySelectorAll('.why .command').length > 0")
    assert "stuck" in text_of(tab, ".why pre")
    producer.abort_transaction()
    tab.until("document.querySelectorAll('.partition.held').length === 0")


def test_records_have_the_fates_of_their_transactions(page, kafka_txn_producer, kafka_topic):
    for end in ("commit_transaction", "abort_transaction", "flush"):
        producer = kafka_txn_producer(end)
        producer.begin_transaction()
        producer.send(kafka_topic, key=end.encode(), value=b'{"paid": 1}').get()
        getattr(producer, end)()
    tab = page(f"tab=topics&topic={kafka_topic}")
    tab.until("document.querySelectorAll('.records details').length === 3")
    fates = "[...document.querySelectorAll('.records .word')].map(word => word.textContent).join(' ')"
    assert tab.value(fates) == "open aborted committed"
    tab.value("document.querySelector('input[name=key]').focus()")
    tab.ask("Input.insertText", text="abort")
    tab.press("Enter")
    tab.until(f"{fates} === 'aborted'")


def test_an_exported_file_draws_the_same_lanes_as_the_page(
    page, ottla_broker, kafka_txn_producer, kafka_topic, tmp_path
):
    producer = kafka_txn_producer("saved")
    producer.begin_transaction()
    producer.send(kafka_topic, b"paid").get()
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(kafka_topic, b"held").get()
    tab = page("filter=saved")
    tab.until(f"{BARS}.length === 2")
    shown = lanes_of(tab)
    folder = str(tmp_path)
    tab.ask("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
    tab.point("#export", click=True)
    exported = tab.wait_for(lambda: next(tmp_path.glob("ottla-*.html"), None))
    producer.abort_transaction()
    tab.open(f"{exported.as_uri()}#span=300000&filter=saved")
    tab.until(f"{BARS}.length === 2")
    assert lanes_of(tab) == shown
    assert "exported" in text_of(tab, "#connection")
