"""Pages of the docs, pasted from top to end, with the data of `ottla demo --keep`."""

import contextlib
import subprocess
import sys

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from tests.pasted import Page, Pasting
from tests.timeout import EVENT_TIMEOUT_S

pytestmark = pytest.mark.conformance
# For `ottla graduate`: a file of Kafka's for a node that is broker and controller.
SERVER_PROPERTIES = """node.id=1
process.roles=broker,controller
log.dirs={{directory}}/{name}
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
"""
AUTHORIZER = "--override authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OF_TEST_KIT = r".*(\ndef test_|\n@pytest|^def test_|^async def test_|^@pytest)"
PAGES = [
    Page("README.md", has_data=False),
    Page("docs/use.md"),
    Page(
        "docs/run.md",
        edits={
            "repair /var/lib/ottla": "repair ottla-data",
            "fence order-processor-01": "fence order-processor-01 --yes",
            "abort financial-ledger 1 2": "abort financial-ledger 1 2 --yes",
        },
    ),
    Page("docs/audits.md", broker=""),
    Page("docs/audit-a-kafka.md", broker=""),
    Page("docs/data-source.md", broker=""),
    Page("docs/test-kit.md", left_out={OF_TEST_KIT: "tests/wire/testkit/test_plugin.py runs the tests of the page"}),
    Page("docs/client.md", broker="", edits={"while True:": "for _ in range(5):"}),
    Page("docs/streaming.md"),
    Page("docs/cache.md"),
    Page("docs/admin-port.md", has_data=False, files={"plan.yaml": None, "admin.token": "secret"}),
    Page("docs/acls.md", broker=f"{AUTHORIZER} --override super.users=User:ANONYMOUS"),
    Page("docs/logs.md"),
    Page("docs/metrics.md"),
    Page("docs/moving.md", files={"server.properties": SERVER_PROPERTIES.format(name="ottla-data")}),
    Page("docs/picture.md"),
    Page(
        "docs/proxy.md",
        broker="",
        files={"plan.yaml": None},
        left_out={
            "from ottla.testkit.proxying": "the service is the reader's",
            "ottla check-history": "needs the history of a service; tests/wire/testkit/test_proxy.py has one",
        },
    ),
    Page(
        "docs/pull.md",
        broker="",
        files={"server.properties": SERVER_PROPERTIES.format(name="restored")},
        edits={"ottla graduate restored": "cp -r copy restored; ottla graduate restored"},
    ),
    Page("docs/tls.md"),
    Page(
        "docs/corpus.md",
        edits={"/tmp/markers": "markers"},
        left_out={
            "ottla serve": "runs in the directory of a case; tests/wire/test_corpus_on_a_broker.py serves each case"
        },
    ),
    Page("docs/troubleshooting.md"),
    Page(
        "docs/several-brokers.md",
        has_data=False,
        left_out={
            OF_TEST_KIT: "tests/wire/testkit/test_plugin.py runs the test",
            "ottla ctl broker move-coordinator": "needs a client that uses the id, as in the test of the page",
        },
    ),
    Page("docs/in-the-log.md"),
]


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory):
    kept = tmp_path_factory.mktemp("demo") / "ottla-data"
    command = [sys.executable, "-m", "ottla", "demo", "--no-audit", "--keep", str(kept)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return kept


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_pasted(page, tmp_path, demo_data, request):
    with contextlib.closing(Pasting(tmp_path, demo_data if page.has_data else None)) as pasting:
        if any("spark" in text for _, language, text in page.pieces() if language == "python"):
            pasting.names["spark"] = request.getfixturevalue("spark")
        pasting.paste(page)


@pytest.mark.parametrize(
    "reason",
    [pytest.param(each[-1], id=f"{page.name}:{each[0]} {each[1]}") for page in PAGES for each in page.skipped()],
)
def test_a_command_that_is_not_pasted_has_a_reason(reason):
    pytest.skip(reason)
