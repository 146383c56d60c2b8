"""The page of the admin port in a real browser: what it draws of a broker's answers."""

import json

import pytest

from tests.browser.admin_stub import NOW_MS, StandIn, answer_topics, describe_record, standing_in

HOSTILE = "<img src=x onerror=alert(1)>\"'</script>\u202e&amp;"
CONTENTS = ("key", "value", "headers", "headers_left_out", "cut")
LANES = "[...document.querySelectorAll('.lane')]"
BARS = "[...document.querySelectorAll('.bar')]"
MOMENT = "document.querySelector('#moment').textContent"
# The end of the drawn window is the one that the address has.
DRAWN_AT_ADDRESS = (
    "document.querySelector('.scrubber').getAttribute('aria-valuenow')"
    " === new URLSearchParams(location.hash.slice(1)).get('at')"
)


@pytest.fixture
def broker():
    return StandIn()


@pytest.fixture
def page(broker, tab):
    """Open the page, at a part of its address behind `#`, and wait until it is live."""
    with standing_in(broker) as address:
        tab.address = address

        def go(fragment="", state="live"):
            tab.open("about:blank")  # so that what follows is loaded anew, though the address may be the same
            tab.open(f"{address}#{fragment}")
            tab.until(f"document.querySelector('#connection').dataset.state === '{state}'")
            return tab

        yield go
        elsewhere = [url for url in tab.asked_for if not url.startswith((address, "data:", "blob:", "about:", "file:"))]
        assert not elsewhere


def lanes_of(tab):
    """By the id of each lane, the states of its bars."""
    return tab.value(
        f"Object.fromEntries({LANES}.map(lane => [lane.dataset.id, "
        "[...lane.querySelectorAll('.bar')].map(bar => bar.classList[1])]))"
    )


def text_of(tab, selector):
    return tab.value(f"document.querySelector({json.dumps(selector)}).innerText")


def held_partition(topic="ledger", partition=0):
    opened = {"transactional_id": "payroll", "producer_id": 9, "producer_epoch": 3, "first_offset": 940}
    return {
        "topic": topic, "partition": partition, "log_start_offset": 100, "last_stable_offset": 940,
        "high_watermark": 1000, "log_end_offset": 1000, "bytes": 4096,
        "open": [{**opened, "started_ms": NOW_MS - 90_000}], "waiting_fetches": 2, "waiting_committed": 1,
    }  # fmt: skip


def describe_group(name):
    row = {
        "topic": "ledger", "partition": 0, "committed": 900, "log_end_offset": 1000, "last_stable_offset": 940,
        "pending": [{"producer_id": 9, "transactional_id": "payroll", "offset": 930}], "lag": 100, "lag_below_lso": 40,
    }  # fmt: skip
    members = [{"member_id": "m-1", "client_id": "reader-1", "assignment": [["ledger", [0, 1]]]}]
    return {"group_id": name, "state": "Stable", "protocol_type": "consumer", "members": members, "offsets": [row]}


def refusal(transactional_id):
    return {
        "at_ms": NOW_MS - 4000, "api": "Produce", "error": "INVALID_PRODUCER_EPOCH", "client_id": "orders",
        "peer": "127.0.0.1:5000", "transactional_id": transactional_id, "reason": "epoch 3 is fenced by 4", "count": 1,
    }  # fmt: skip


def open_transaction(transactional_id, started_ms, **more):
    return {
        "transactional_id": transactional_id, "producer_id": 9, "producer_epoch": 3, "state": "Ongoing",
        "started_ms": started_ms, "last_update_ms": started_ms, "timeout_ms": 60_000, "records": 1200, "bytes": 2048,
        "partitions": [{"topic": "ledger", "partition": 7, "first_offset": 1}], "waits_for": "its producer", **more,
    }  # fmt: skip


def test_each_transaction_is_a_bar_in_the_lane_of_its_id(broker, page):
    broker.transaction("orders-1", NOW_MS - 30_000, NOW_MS - 21_000, NOW_MS - 20_000)
    broker.transaction("orders-1", NOW_MS - 15_000, NOW_MS - 11_000, NOW_MS - 10_000, commit=False)
    broker.transaction("billing", NOW_MS - 8_000, NOW_MS - 1_000)
    broker.transaction("stuck", NOW_MS - 40_000)
    broker.answers["transactions"]["left_out"] = 2
    tab = page()
    tab.until(f"{BARS}.length === 4")
    assert lanes_of(tab) == {
        "stuck": ["open"],
        "billing": ["prepared"],
        "orders-1": ["committed", "aborted"],
    }
    assert tab.value("document.querySelectorAll('.bar.prepared .hatch').length") == 1
    first, second = tab.value(
        "[...document.querySelectorAll('.lane[data-id=orders-1] .body')].map(bar => bar.width.baseVal.value)"
    )
    assert first == pytest.approx(2 * second, rel=0.1)


def test_events_are_drawn_as_they_arrive(broker, page):
    tab = page()
    tab.until("document.querySelector('#left-out').innerText.startsWith('No transactions in this time')")
    broker.event("begun", "orders-1", NOW_MS - 500)
    tab.until("document.querySelectorAll('.bar.open').length === 1")
    broker.event("prepared", "orders-1", NOW_MS - 300, commit=True)
    tab.until("document.querySelectorAll('.bar.prepared').length === 1")
    broker.event("completed", "orders-1", NOW_MS - 100, commit=True)
    tab.until("document.querySelectorAll('.bar.committed').length === 1")
    broker.tick(open_transactions=7, oldest_open_ms=65_000)
    tab.until("document.querySelector('[data-figure=\"open now\"] dd').textContent === '7'")
    assert text_of(tab, "[data-figure='oldest open'] dd") == "1 min 5 s"


def test_fences_and_timeouts_have_marks_and_a_fence_names_its_error(broker, page):
    broker.transaction("orders-1", NOW_MS - 30_000, NOW_MS - 21_000, NOW_MS - 20_000, commit=False)
    broker.event("timed_out", "orders-1", NOW_MS - 21_500)
    broker.event("fenced", "orders-1", NOW_MS - 5000, error="INVALID_PRODUCER_EPOCH")
    tab = page()
    tab.until("document.querySelectorAll('.lane .mark.timed_out').length === 1")
    tab.point(".lane .mark.fenced")
    tab.until("!document.querySelector('#card').hidden")
    assert "fenced" in text_of(tab, "#card") and "INVALID_PRODUCER_EPOCH" in text_of(tab, "#card")


def test_the_card_describes_the_transaction_that_was_clicked(broker, page):
    broker.event("begun", "payroll", NOW_MS - 30_000)
    broker.answers["transactions"] = {
        "transactions": [open_transaction("payroll", NOW_MS - 30_000)],
        "total": 1,
        "left_out": 0,
    }
    tab = page()
    tab.until(f"{BARS}.length === 1")
    tab.point(".bar", click=True)
    tab.until("document.querySelector('#card').innerText.includes('its producer')")
    card = text_of(tab, "#card")
    for told in ("payroll", "id 9, epoch 3", "1,200, 2.0 KiB", "ledger-7", "open"):
        assert told in card
    tab.press("Escape")
    tab.until("document.querySelector('#card').hidden")


def test_keys_walk_through_transactions(broker, page):
    for index in range(3):
        broker.transaction(
            "orders-1", NOW_MS - 30_000 + 5000 * index, NOW_MS - 28_000 + 5000 * index, NOW_MS - 27_900 + 5000 * index
        )
    broker.transaction("orders-2", NOW_MS - 25_000, NOW_MS - 23_000, NOW_MS - 22_900, commit=False)
    tab = page()
    tab.until(f"{BARS}.length === 4")
    tab.press(" ")
    tab.until("document.querySelector('#pause').textContent === 'Live'")
    focused = "document.activeElement.getAttribute('aria-label')"
    tab.value("document.querySelector('.timeline [tabindex=\"0\"]').focus()")
    tab.press("ArrowRight", "ArrowDown")
    assert tab.value(focused).startswith("orders-2: aborted")
    tab.press("ArrowUp", "ArrowRight")
    assert tab.value(focused).startswith("orders-1: committed, 2.1 s")
    assert "orders-1" in text_of(tab, "#card")


def test_a_paused_page_keeps_its_moment_and_its_url_restores_it(broker, page):
    broker.transaction("orders-1", NOW_MS - 300_000, NOW_MS - 291_000, NOW_MS - 290_000)
    tab = page()
    tab.until(f"{MOMENT} !== ''")
    assert tab.value(f"{BARS}.length") == 0
    tab.press(" ")
    tab.value("document.querySelector('.scrubber').focus()")
    tab.press("PageDown", *["PageUp"] * 5, "ArrowRight")
    tab.until(DRAWN_AT_ADDRESS)
    assert tab.value(f"{BARS}.length") == 1
    shown = tab.value(MOMENT)
    broker.tick(5000)
    tab.until("document.querySelector('#about').textContent.includes('1 h 0 min')")
    assert tab.value(MOMENT) == shown
    fragment = tab.value("location.hash.slice(1)")
    assert "at=" in fragment
    page(fragment).until(f"{BARS}.length === 1 && {DRAWN_AT_ADDRESS}")
    assert tab.value(MOMENT) == shown
    tab.press(" ")
    tab.until(f"{BARS}.length === 0")


def test_the_filter_leaves_what_has_it_in_its_name(broker, page):
    for name in ("orders-1", "orders-2", "billing"):
        broker.transaction(name, NOW_MS - 30_000, NOW_MS - 21_000, NOW_MS - 20_000)
    tab = page("filter=bill")
    tab.until(f"{BARS}.length === 1")
    assert list(lanes_of(tab)) == ["billing"]
    tab.value("document.querySelector('#filter').select()")
    tab.press(*"ers-2")
    tab.until(f"{LANES}[0]?.dataset.id === 'orders-2'")
    assert "filter=ers-2" in tab.value("location.hash")


def test_thousands_of_ids_share_a_band_except_stuck_and_fenced_ones(broker, page):
    for index in range(3000):
        at = NOW_MS - 50_000 + index * 15
        broker.transaction(f"checkout-{index}", at, at + 50, at + 60, commit=index % 10 != 0)
    broker.transaction("stuck", NOW_MS - 59_000)
    broker.event("fenced", "checkout-77", NOW_MS - 9000)
    broker.answers["transactions"]["left_out"] = 1
    tab = page()
    tab.until("document.querySelectorAll('.band').length === 1")
    shown = list(lanes_of(tab))
    assert shown[:2] == ["stuck", "checkout-77"] and len(shown) <= 40
    told = "document.querySelector('.band').dataset"
    assert tab.value(f"{told}.pattern") == "checkout-*"
    assert int(tab.value(f"{told}.ids")) == 3001 - len(shown)
    assert f"3,001 transactional ids; {len(shown)} have a lane" in text_of(tab, "#left-out")
    assert tab.value("document.querySelectorAll('*').length") < 2000
    tab.point("#left-out button", click=True)
    tab.until(f"document.querySelectorAll('.lane').length > {len(shown)}")
    broker.send("gap", {"left_out": 1234})
    tab.until("document.querySelector('#left-out').textContent.includes('1,234 events left out')")


def test_a_partition_shows_what_an_open_transaction_holds_back(broker, page):
    free = {**held_partition(partition=1), "last_stable_offset": 1000, "open": []}
    broker.answers["partitions"] = {"partitions": [held_partition(), free], "total": 2, "left_out": 0}
    broker.why["ledger", 0] = {"text": "payroll holds ledger-0 back", "commands": ["ottla txn abort --topic ledger"]}
    tab = page("tab=partitions")
    tab.until("document.querySelectorAll('.partition').length === 2")
    widths = "['stable', 'held'].map(name => document.querySelector('.partition .' + name).getBoundingClientRect())"
    stable, held = tab.value(f"{widths}.map(box => [box.left, box.right])")
    assert stable[1] == pytest.approx(held[0], abs=1.5) and held[1] > held[0] + 100
    assert "60 records held back for 1 min 3" in text_of(tab, ".partition")
    assert "2 readers wait, 1 for what is committed" in text_of(tab, ".partition")
    assert tab.value("document.querySelectorAll('.partition.held').length") == 1
    tab.point(".partition .row", click=True)
    tab.until("document.querySelector('.why code')?.textContent === 'ottla txn abort --topic ledger'")
    assert "payroll holds ledger-0 back" in text_of(tab, ".why")


def test_a_group_shows_members_and_what_is_pending_in_which_transaction(broker, page):
    broker.answers["groups"] = {"groups": [describe_group("readers")], "total": 1, "left_out": 0}
    tab = page("tab=groups")
    tab.until("document.querySelectorAll('.group tbody tr').length === 1")
    told = text_of(tab, ".group")
    for part in ("readers", "Stable", "reader-1", "ledger [0, 1]", "930 in payroll", "900", "100", "40"):
        assert part in told
    broker.answers["groups"]["groups"][0]["offsets"][0]["held_by"] = {
        "first_offset": 940,
        "transactional_id": "payroll",
    }
    tab.until("document.querySelector('.badge.held')?.innerText === 'held back by an open transaction'")
    assert "940 in payroll" in text_of(tab, ".group tbody")


def test_a_topic_shows_its_records_with_their_fates_by_keys_alone(broker, page):
    waiting = describe_record(3, "aborted", waiting_for=2)
    records = [describe_record(1, "committed"), describe_record(2, "open"), waiting, describe_record(4, "none")]
    answer_topics(broker, "orders", *records)
    tab = page("tab=topics")
    tab.until("document.querySelectorAll('#topics tbody tr').length === 1")
    tab.value("document.querySelector('#topics .link').focus()")
    tab.press("Enter")
    tab.until("document.querySelectorAll('.records details').length === 4")
    fates = tab.value(
        "[...document.querySelectorAll('.records .word')].map(word => word.className + ':' + word.innerText)"
    )
    assert fates == [
        "word none:none",
        "word aborted:aborted waits for orders",
        "word open:open",
        "word committed:committed",
    ]
    tab.until("document.querySelector('.about')?.innerText.includes('cleanup.policy=compact')")
    tab.press("[")
    tab.until("performance.getEntriesByType('resource').some(entry => entry.name.includes('before=10'))")
    tab.press("]")
    tab.until("performance.getEntriesByType('resource').some(entry => entry.name.includes('offset=15'))")
    assert tab.value("location.hash").endswith("tab=topics&topic=orders&partition=0&records=offset%3D15")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("text", '{"n":12345678901234567890,"a":[{}]}'),
        ("JSON", '{\n  "n": 12345678901234567890,\n  "a": [\n    {}\n  ]\n}'),
        ("hex", "00000  7b 22 6e 22 3a 31 32"),
    ],
)
def test_a_value_is_written_as_text_json_or_hex(broker, page, shape, expected):
    answer_topics(broker, "orders", describe_record(1, "none", '{"n":12345678901234567890,"a":[{}]}', headers=[]))
    tab = page("tab=topics&topic=orders&partition=0&records=offset%3D1")
    tab.until("document.querySelectorAll('.records details').length === 1")
    tab.value(f"[...document.querySelectorAll('.shapes button')].find(one => one.textContent === '{shape}').click()")
    value = "document.querySelectorAll('.records pre')[1].textContent"
    tab.until(f"{value}.startsWith({json.dumps(expected)})")


def test_a_cut_binary_value_shows_its_size_and_missing_offsets_have_a_reason(broker, page):
    binary = {"size": 10_000_000, "base64": "//4A"}
    left_out = [{"first_offset": 2, "last_offset": 9, "reason": "the CRC of the batch is wrong"}]
    answer_topics(broker, "orders", describe_record(1, "none", value=binary), left_out=left_out, note="It was deleted")
    tab = page("tab=topics&topic=orders&partition=0&records=offset%3D1")
    tab.until("document.querySelectorAll('.records details').length === 1")
    told = tab.value("document.querySelector('#topics').textContent")
    for part in ("3 of 10,000,000 bytes", "Not shown: 2 to 9: the CRC of the batch is wrong", "It was deleted"):
        assert part in told


def test_withheld_contents_and_a_deleted_topic_are_explained(broker, page):
    bare = {name: value for name, value in describe_record(1, "committed").items() if name not in CONTENTS}
    answer_topics(broker, "orders", bare, withheld="admin.show.records is false")
    tab = page("tab=topics&topic=orders&partition=0&records=offset%3D1")
    tab.until("document.querySelectorAll('.records details').length === 1")
    assert "are not shown: admin.show.records is false" in text_of(tab, "#topics")
    broker.refusals["topics/orders/0/records"] = 404, "There is no such topic, or it was deleted"
    tab.press("[")
    tab.until("document.querySelector('#topics .error')?.innerText.startsWith('There is no such topic')")
    tab.forgives = ("Failed to load resource",)


def test_internal_topics_are_shown_only_with_a_switch(broker, page):
    answer_topics(broker, "orders")
    partitions = [held_partition(), held_partition("__consumer_offsets")]
    broker.answers["partitions"] = {"partitions": partitions, "total": 2, "left_out": 0}
    tab = page("tab=partitions")
    tab.until("document.querySelectorAll('.partition').length === 1")
    tab.point("#internal", click=True)
    tab.until("document.querySelectorAll('.partition').length === 2")
    tab.press("3")
    tab.until("document.querySelectorAll('#topics tbody tr').length === 2")


def test_the_broker_shows_rates_open_transactions_and_what_it_refused(broker, page):
    broker.answers["refusals"] = {"refusals": [refusal("orders-1")]}
    broker.answers["transactions"] = {
        "transactions": [open_transaction("payroll", NOW_MS - 30_000)],
        "total": 1,
        "left_out": 0,
    }
    tab = page("tab=broker")
    tab.until("document.querySelectorAll('.refusals tbody tr').length === 1")
    for _ in range(3):
        broker.tick()
    tab.until("document.querySelectorAll('.chart[data-figure=\"requests /s\"] .line').length === 1")
    assert "epoch 3 is fenced by 4" in text_of(tab, ".refusals")
    assert "payroll" in text_of(tab, ".producers")


@pytest.mark.parametrize("seen", ["transactions", "partitions", "topics", "groups", "broker"])
def test_names_with_markup_are_displayed_as_text(broker, page, seen):
    broker.transaction(HOSTILE, NOW_MS - 30_000)
    broker.event("fenced", HOSTILE, NOW_MS - 2000, error=HOSTILE)
    opened = [open_transaction(HOSTILE, NOW_MS - 30_000, waits_for=HOSTILE)]
    broker.answers = {
        "transactions": {"transactions": opened, "total": 1, "left_out": 0},
        "partitions": {"partitions": [held_partition(HOSTILE)], "total": 1, "left_out": 0},
        "groups": {"groups": [describe_group(HOSTILE)], "total": 1, "left_out": 0},
        "refusals": {"refusals": [refusal(HOSTILE)]},
    }
    answer_topics(broker, HOSTILE, describe_record(1, "open", HOSTILE, waiting_for=1), note=HOSTILE)
    broker.why[HOSTILE, 0] = {"text": HOSTILE, "commands": [HOSTILE]}
    tab = page(f"tab={seen}")
    tab.until(f"document.querySelector('main').textContent.includes({json.dumps(HOSTILE)})")
    if seen == "partitions":
        tab.point(".partition .row", click=True)
        tab.until(f"document.querySelector('.why code')?.textContent === {json.dumps(HOSTILE)}")
    if seen == "topics":
        tab.point("#topics .link", click=True)
        tab.until(f"document.querySelector('.records pre')?.textContent === {json.dumps(HOSTILE)}")
    if seen == "transactions":
        tab.point(".bar", click=True)
        tab.until(f"document.querySelector('#card strong')?.textContent === {json.dumps(HOSTILE)}")
    assert tab.value("document.querySelectorAll('img, script:not([src]), [onerror]').length") == 0


def test_the_page_reports_a_lost_connection_and_reconnects(broker, page):
    broker.transaction("orders-1", NOW_MS - 30_000, NOW_MS - 21_000, NOW_MS - 20_000)
    tab = page()
    tab.until(f"{BARS}.length === 1")
    tab.forgives = ("Failed to load resource",)
    broker.stop()
    tab.until("!document.querySelector('#banner').hidden")
    assert "The connection to the broker is lost" in text_of(tab, "#banner")
    assert tab.value(f"{BARS}.length") == 1
    broker.now_ms += 3000
    broker.start_again()
    broker.transaction("orders-1", broker.now_ms, broker.now_ms + 400, broker.now_ms + 500)
    tab.until("document.querySelector('#connection').dataset.state === 'live'")
    broker.tick()
    tab.until(f"{BARS}.length === 2")
    assert tab.value("document.querySelector('#banner').hidden")
    assert tab.value("document.querySelectorAll('.timeline .restart').length") == 1


def test_a_port_with_a_token_is_opened_with_it(broker, page):
    broker.token = "a-token-of-some-length"
    broker.transaction("orders-1", NOW_MS - 30_000, NOW_MS - 21_000, NOW_MS - 20_000)
    tab = page(state="lost")
    tab.forgives = ("Failed to load resource: the server responded with a status of 401",)
    tab.until("!document.querySelector('#token-form').hidden")
    tab.value("document.querySelector('#token').focus()")
    tab.press(*"wrong", "Enter")
    tab.until("document.querySelector('#token-told').textContent.includes('not the token')")
    tab.value("document.querySelector('#token').select()")
    tab.press(*broker.token, "Enter")
    tab.until(f"{BARS}.length === 1 && document.querySelector('#token-form').hidden")
    assert not [path for path in broker.asked if broker.token in path]


def test_colours_are_those_of_the_system_unless_others_are_chosen(page, tab):
    paper = "getComputedStyle(document.body).backgroundColor"
    tab.prefers(color_scheme="dark")
    page()
    dark = tab.value(paper)
    tab.prefers(color_scheme="light")
    light = tab.value(paper)
    assert dark != light
    tab.point("#theme", click=True)
    tab.point("#theme", click=True)
    assert tab.value(paper) == dark
    page("tab=groups")
    assert tab.value(paper) == dark
    tab.point("#theme", click=True)


@pytest.mark.parametrize("seen", ["transactions", "partitions", "topics", "groups", "broker"])
def test_a_phone_needs_no_scrolling_sideways(broker, page, tab, seen):
    long = "a-very-long-name-of-a-service." * 8
    broker.transaction(long, NOW_MS - 30_000)
    broker.answers["partitions"] = {"partitions": [held_partition(long)], "total": 1, "left_out": 0}
    broker.answers["groups"] = {"groups": [describe_group(long)], "total": 1, "left_out": 0}
    broker.answers["refusals"] = {"refusals": [refusal(long)]}
    answer_topics(broker, long, describe_record(1, "aborted", long * 9, waiting_for=2), note=long)
    tab.resize(400, 800, is_phone=True)
    page(f"tab={seen}")
    tab.until(f"document.querySelector('main').textContent.includes({json.dumps(long)})")
    assert tab.value("document.documentElement.scrollWidth") <= 400
    if seen == "topics":
        tab.point("#topics .link", click=True)
        tab.until("document.querySelectorAll('.records details').length === 1")
        tab.value("document.querySelector('.records details').open = true")
        assert tab.value("document.documentElement.scrollWidth") <= 400


def test_an_exported_file_shows_the_same_without_a_broker(broker, page, tab, tmp_path):
    broker.transaction("orders-1", NOW_MS - 30_000, NOW_MS - 21_000, NOW_MS - 20_000)
    broker.transaction(HOSTILE, NOW_MS - 15_000, NOW_MS - 11_000, NOW_MS - 10_000, commit=False)
    broker.answers["partitions"] = {"partitions": [held_partition()], "total": 1, "left_out": 0}
    page().until(f"{BARS}.length === 2")
    before = lanes_of(tab)
    exported = tmp_path / "exported.html"
    exported.write_bytes(broker.export(NOW_MS - 60_000, NOW_MS))
    asked = len(tab.asked_for)
    tab.open(exported.as_uri())
    tab.until(f"{BARS}.length === 2")
    assert lanes_of(tab) == before
    assert "exported" in text_of(tab, "#connection")
    tab.press("2")
    tab.until("document.querySelectorAll('.partition').length === 1")
    assert not [url for url in tab.asked_for[asked:] if not url.startswith(("file:", "data:"))]
    tab.open("about:blank")


def test_export_requests_the_time_window_of_the_page(broker, page):
    broker.transaction("orders-1", NOW_MS - 30_000, NOW_MS - 21_000, NOW_MS - 20_000)
    tab = page(f"at={NOW_MS - 10_000}&span=15000")
    tab.until(f"{BARS}.length === 1")
    tab.point("#export", click=True)
    tab.until("performance.getEntriesByType('resource').some(entry => entry.name.includes('v1/export'))")
    assert f"/v1/export?from_ms={NOW_MS - 25_000}&to_ms={NOW_MS - 10_000}" in broker.asked
