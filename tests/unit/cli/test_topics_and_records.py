"""`ottla topics`, `ottla produce` and `ottla consume` against a broker."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from ottla.cli import output
from ottla.cli.consume import session as consuming
from ottla.cli.main import main
from ottla.cli.produce.lines import Line
from tests.conformance.open_transactions import Client
from tests.thread_broker import ThreadBroker
from tests.unit.cli.test_terminal import check_document, read_fields

LEDGER = "ledger"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with ThreadBroker(tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture(scope="module")
def ledger(broker):
    """A topic with a transaction of each fate, those of partition 0 from offset 5 on held back by an open one."""
    client = Client(broker.bootstrap)
    client.create_topic(LEDGER, 2)
    client.produce(LEDGER, 0, count=1)
    for transactional_id, is_committed in (("done", True), ("undone", False)):
        producer = client.begin(transactional_id, [(LEDGER, 0)])
        client.end(transactional_id, *producer, is_committed)
        end = 3 if is_committed else 5
        client.until(lambda end=end: client.last_stable_offset(LEDGER, 0) == end)
    client.begin("held", [(LEDGER, 0)], timeout_ms=900_000)
    for transactional_id, is_committed in (("later", True), ("late-abort", False)):
        producer = client.begin(transactional_id, [(LEDGER, 0)])
        client.end(transactional_id, *producer, is_committed)
        end = 8 if is_committed else 10
        client.until(lambda end=end: client.end_offset(LEDGER, 0) == end)
    client.produce(LEDGER, 0, count=1)
    yield LEDGER
    client.close()


@pytest.fixture
def run(broker):
    def call(*words, given=None):
        done = CliRunner().invoke(main, [*map(str, words), "-b", broker.bootstrap], input=given)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return call


@pytest.fixture
def topic(run, request):
    """Return the name of a new topic of one partition."""
    name = f"t{abs(hash(request.node.name))}"
    assert run("topics", "create", name, "--partitions", 1).exit_code == 0
    return name


def consume(run, *words):
    done = run("consume", *words, "--format", "json")
    assert (done.exit_code, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def fates(rows):
    return [(row["offset"], row["fate"], row["transactional_id"], row["waiting_for"]) for row in rows]


FATES = [
    (0, "none", None, None),
    (1, "committed", "done", None),
    (3, "aborted", "undone", None),
    (5, "open", "held", None),
    (6, "committed", "later", 5),
    (8, "aborted", "late-abort", 5),
    (10, "none", None, 5),
]


# -- consume


def test_each_record_has_its_fate(run, ledger):
    assert fates(consume(run, ledger, "--partition", 0)) == FATES


def test_text_has_a_line_for_each_record(run, ledger):
    lines = run("consume", ledger).stdout.splitlines()
    assert [line.split("  ")[2] for line in lines] == [
        "none",
        "committed (done)",
        "aborted (undone)",
        "open (held)",
        "committed (later) waiting for 5",
        "aborted (late-abort) waiting for 5",
        "none waiting for 5",
    ]
    assert [line.split("  ")[0] for line in lines][:2] == ["0:0", "0:1"]
    assert {tuple(line.split("  ")[3:]) for line in lines} == {("k", "v")}


def test_a_committed_read_ends_at_the_last_stable_offset_and_reports_the_rest(run, ledger, broker):
    done = run("consume", ledger, "--isolation", "read_committed", "--format", "json")
    assert fates(map(json.loads, done.stdout.splitlines())) == FATES[:2]
    why = f"ottla txn why {ledger} 0 -b {broker.bootstrap}"
    assert done.stderr == f"ottla: 6 offsets of {ledger}-0 from 5 on wait for an open transaction: {why}\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--first-offset", 3, "--end-offset", 6], FATES[2:4]),
        (["--first-offset", 6, "--end-offset", 7], FATES[4:5]),
        (["--first-offset", -1], FATES[6:]),
        (["--first-offset", -1000, "--max", 2], FATES[:2]),
        (["--first-offset", 11], []),
        (["--partition", 1], []),
    ],
)
def test_a_range_of_offsets(run, ledger, words, found):
    assert fates(consume(run, ledger, *words)) == found


def test_a_transaction_of_more_markers_than_are_kept_is_open_as_its_leader_knows(run, ledger, monkeypatch):
    monkeypatch.setattr("ottla.fates.MarkersAhead.__init__.__defaults__", (1,), raising=True)
    assert fates(consume(run, ledger, "--partition", 0)) == FATES


def test_keys_and_values_are_escaped_and_cut(run, topic):
    accents, escape, many = "\u00e9" * 150, "\x1b", "x" * 1000
    value = accents + escape + many
    rows = [{"key": {"base64": "/0E="}, "value": value}, {"key": "", "value": None}]
    run("produce", topic, "--format", "json", given="".join(json.dumps(row) + "\n" for row in rows))
    first, second = run("consume", topic).stdout.splitlines()
    shown = accents + r"\x1b" + many
    assert first.split("  ")[3:] == [r"\xffA", f"{accents}\\x1b{'x' * 49}... (1301 bytes)"]
    assert second.split("  ")[3:] == ['""', "null"]
    whole = run("consume", topic, "--whole", "--max", 1).stdout
    assert whole.endswith(f"  {shown}\n")


def test_follow_prints_new_records_until_the_maximum(run, topic, monkeypatch):
    run("produce", topic, given="1\n2\n")
    sent = iter("34")
    monkeypatch.setattr(
        consuming, "time", SimpleNamespace(sleep=lambda _: run("produce", topic, given=next(sent) + "\n"))
    )
    rows = consume(run, topic, "--follow", "--max", 4)
    assert [row["value"] for row in rows] == ["1", "2", "3", "4"]


def test_a_topic_that_is_deleted_while_it_is_read_is_one_line(run, topic, monkeypatch):
    run("produce", topic, given="1\n")
    delete = SimpleNamespace(sleep=lambda _: run("topics", "delete", topic, "--yes"))
    monkeypatch.setattr(consuming, "time", delete)
    done = run("consume", topic, "--follow", "--timeout-s", 1)
    assert done.exit_code == 2 and len(done.stdout.splitlines()) == 1
    assert done.stderr == f"ottla: {topic}-0: the topic was deleted while it was read\n"


# -- produce


def test_produce_reads_what_consume_prints(run, topic):
    rows = [
        {"key": "k", "value": "v", "headers": [["a", "1"], ["a", {"base64": "/w=="}]], "timestamp": 17},
        {"key": {"base64": "/w=="}, "value": None, "headers": [], "timestamp": 18},
        {"key": None, "value": "\u00e9\n", "headers": [], "timestamp": 19},
    ]
    done = run("produce", topic, "--format", "json", given="".join(json.dumps(row) + "\n" for row in rows))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"3 records sent to {topic}\n")
    copied = run("consume", topic, "--format", "json").stdout
    assert run("produce", topic, "--format", "json", given=copied).exit_code == 0
    found = [{name: row[name] for name in rows[0]} for row in consume(run, topic)]
    assert found == rows + rows


def test_transactions_of_some_lines_and_one_for_the_rest(run, topic):
    done = run("produce", topic, "--transactional-id", "t", "--every", 2, "--header", "h=1", given="a\nb\nc\n")
    assert (done.exit_code, done.stderr) == (0, f"3 records sent to {topic}, 2 transactions committed\n")
    done = run("produce", topic, "--transactional-id", "t", "--abort", given="d\ne\n")
    assert (done.exit_code, done.stderr) == (0, f"2 records sent to {topic}, 1 transaction aborted\n")
    rows = consume(run, topic)
    assert [(row["value"], row["fate"]) for row in rows] == [
        ("a", "committed"),
        ("b", "committed"),
        ("c", "committed"),
        ("d", "aborted"),
        ("e", "aborted"),
    ]
    assert [row["offset"] for row in rows] == [0, 1, 3, 5, 6]
    assert {row["transactional_id"] for row in rows} == {"t"} and rows[0]["headers"] == [["h", "1"]]


@pytest.mark.parametrize(
    ("words", "outcome", "found"),
    [
        ([], "lines 1 to 3 are written", "abc"),
        (["--transactional-id", "u", "--every", 2], "lines 1 to 2 are committed", "ab"),
        (["--transactional-id", "u"], "no line is committed", ""),
    ],
)
@pytest.mark.parametrize("kind", ["bad", "large"])
def test_an_error_names_its_line_and_what_is_written_before(run, topic, words, outcome, found, kind):
    value, reason = {
        "bad": ("no key", "it has no ':' between key and value (--key-separator)"),
        "large": (
            "k:" + "x" * 3_000_000,
            "a record of 3000001 bytes is above the topic's max.message.bytes (MESSAGE_TOO_LARGE): raise it, or send "
            "smaller records",
        ),
    }[kind]
    done = run("produce", topic, "--key-separator", ":", *words, given=f"k:a\nk:b\nk:c\n{value}\n")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"ottla: line 4: {reason}; {outcome}\n")
    assert [row["value"] for row in consume(run, topic) if row["fate"] != "aborted"] == list(found)


def test_a_record_without_key_and_value_and_a_partition_that_is_not_there_are_refused(run, topic):
    for given, reason in (
        ('{"value": null}', "it has neither key nor value"),
        ('{"value": "v", "partition": 1}', f"topic {topic} has partitions 0 to 0, not 1"),
    ):
        done = run("produce", topic, "--format", "json", given=given)
        assert done.exit_code == 1 and f"line 1: {reason}" in done.stderr and "; no line is written" in done.stderr


def test_a_fenced_producer_is_one_line(run, topic, broker, monkeypatch):
    client = Client(broker.bootstrap)

    def read_lines(stream, parse):
        yield Line(1, None, b"a")
        client.until(lambda: client.init_producer_id("fenced", 60_000))
        yield Line(2, None, b"b")

    monkeypatch.setattr("ottla.cli.produce.lines.read_lines", read_lines)
    done = run("produce", topic, "--transactional-id", "fenced")
    client.close()
    assert done.exit_code == 1 and len(done.stderr.splitlines()) == 1
    assert "the lines from 1 on is aborted: another producer has this transactional id" in done.stderr
    assert done.stderr.endswith("; no line is committed\n")
    assert {row["fate"] for row in consume(run, topic)} <= {"aborted"}


# -- topics


def test_a_topic_is_created_listed_described_and_deleted(run):
    configs = ("--config", "cleanup.policy=compact", "--config", "max.message.bytes=17000")
    assert run("topics", "create", "made", "--partitions", 3, *configs).stdout == "created topic made.\n"
    assert "made" in run("topics").stdout and "made" in run("topics", "list").stdout
    found = json.loads(run("topics", "describe", "made", "--format", "json").stdout)
    assert [(row["partition"], row["leader"], row["isr"]) for row in found["partitions"]] == [
        (number, 1, "1") for number in range(3)
    ]
    assert found["configs"] == [
        {"config": "cleanup.policy", "value": "compact"},
        {"config": "max.message.bytes", "value": "17000"},
    ]
    again = run("topics", "create", "made")
    assert again.exit_code == 1 and again.stderr.startswith("ottla: topic made: Topic 'made' already exists.")
    assert run("topics", "create", "made", "--if-not-exists").exit_code == 0
    refused = run("topics", "delete", "made")
    assert (refused.exit_code, refused.stdout) == (2, "") and "--yes does it" in refused.stderr
    done = run("topics", "delete", "made", "absent", "--yes", "--format", "json")
    assert done.exit_code == 1
    assert [(row["topic"], row["deleted"]) for row in json.loads(done.stdout)["topics"]] == [
        ("made", True),
        ("absent", False),
    ]
    assert "made" not in run("topics").stdout


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_a_deletion_asks_on_a_terminal(run, topic, monkeypatch, answer, code):
    monkeypatch.setattr(output, "can_answer", lambda: True)
    done = run("topics", "delete", topic, given=answer)
    assert done.exit_code == code and f"Delete {topic} at" in done.stderr
    assert (topic in run("topics").stdout) is (code == 1)


def test_internal_topics_are_listed_on_request(run, ledger):
    assert "__transaction_state" not in run("topics").stdout
    assert "__transaction_state" in run("topics", "--internal").stdout
    assert "__transaction_state" in run("topics", "list", "--internal").stdout


def test_offsets_of_a_partition_are_described(run, ledger):
    rows = json.loads(run("topics", "describe", ledger, "--format", "json").stdout)["partitions"]
    names = ("first_offset", "last_stable_offset", "end_offset", "error")
    assert [tuple(row[name] for name in names) for row in rows] == [(0, 5, 11, None), (0, 0, 0, None)]


# -- all of them


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["consume", "absent"], "topic absent does not exist, or this user lacks DESCRIBE on it"),
        (["consume", LEDGER, "--partition", 2], "topic ledger has partitions 0 to 1, not 2"),
        (["produce", "absent"], "topic absent does not exist: `ottla topics create absent` creates it"),
        (["produce", LEDGER, "--partition", 2], "topic ledger has partitions 0 to 1, not 2"),
        (["topics", "describe", "absent"], "topic absent does not exist, or this user lacks DESCRIBE on it"),
        (["topics", "create", "a b"], "Topic name is invalid"),
        (["topics", "delete", LEDGER], "--yes does it"),
    ],
)
def test_a_wrong_name_is_one_line_and_exit_2(run, ledger, words, reason):
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert reason in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["consume"],
        ["consume", "t", "--follow", "--end-offset", "3"],
        ["consume", "t", "--first-offset", str(2**63)],
        ["consume", "t", "--end-offset", "-1"],
        ["consume", "t", "--max", "0"],
        ["consume", "t", "--partition", "one"],
        ["consume", "t", "--isolation", "committed"],
        ["produce"],
        ["produce", "t", "--every", "2"],
        ["produce", "t", "--abort"],
        ["produce", "t", "--transactional-id", ""],
        ["produce", "t", "--transactional-id", "t", "--every", "0"],
        ["produce", "t", "--partition", "-1"],
        ["produce", "t", "--header", "a"],
        ["produce", "t", "--key-separator", ""],
        ["produce", "t", "--key-separator", ":", "--format", "json"],
        ["topics", "create"],
        ["topics", "create", "t", "--partitions", "0"],
        ["topics", "create", "t", "--replication-factor", "40000"],
        ["topics", "create", "t", "--config", "a"],
        ["topics", "delete", "--yes"],
        ["topics", "swerve"],
        ["topics", "--internal", "describe", "t"],
        ["topics", "--timeout-s", "0"],
        ["topics", "--format", "xml"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_refused_before_a_broker_is_asked(words):
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stdout) == (2, "") and "Error: " in done.stderr


@pytest.mark.parametrize("words", [["topics"], ["topics", "create", "t"], ["consume", "t"], ["produce", "t"]])
@pytest.mark.parametrize(
    ("address", "reason"), [("127.0.0.1:1", "nothing listens there"), ("127.0.0.1", "is not HOST:PORT")]
)
def test_an_address_without_a_broker_is_one_line(words, address, reason):
    done = CliRunner().invoke(main, [*words, "-b", address])
    assert (done.exit_code, done.stdout) == (2, "")
    assert reason in done.stderr and len(done.stderr.splitlines()) == 1


def test_json_is_as_documented(run, ledger):
    check_document("ottla topics list", json.loads(run("topics", "--format", "json").stdout))
    check_document("ottla topics describe", json.loads(run("topics", "describe", ledger, "--format", "json").stdout))
    check_document("ottla topics create", json.loads(run("topics", "create", "new", "--format", "json").stdout))
    deleted = run("topics", "delete", "new", "--yes", "--format", "json")
    check_document("ottla topics delete", json.loads(deleted.stdout))
    fields = read_fields()["ottla consume"]["record"]
    assert {tuple(row) for row in consume(run, ledger)} == {tuple(fields)}
