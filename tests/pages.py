"""Pages of the docs that tests paste, what is left out of each, and the pages that are not pasted, with the reasons."""

from tests.pasted import Page

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
    Page(
        "docs/use.md",
        left_out={
            r"ottla consume .*--follow": "waits for records until it is stopped",
            r"ottla consume .*\|": "needs a second cluster",
        },
    ),
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
    Page(
        "docs/test-kit.md",
        left_out={
            OF_TEST_KIT: "tests/wire/testkit/test_plugin.py runs the tests of the page",
            r"(?s)ottla serve .*--ottla-admin ": "needs another machine: tests/wire/testkit/test_elsewhere.py",
        },
    ),
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

NOT_PASTED = {
    "CONTRIBUTING.md": "it is about a checkout: CI runs its commands",
    "docs/containers.md": "needs containers",
    "docs/ecosystem.md": "needs a schema registry",
    "docs/logins.md": "needs an account of a cloud, or a broker with logins: tests/wire/broker/test_every_login.py",
    "docs/others.md": "benchmarks take long",
    "docs/release.md": "it publishes a release",
    "docs/secure.md": "tests/wire/test_secure_page.py pastes it, and compares the output",
    "docs/test-recipes.md": "its recipes are tests: tests/wire/testkit",
    "docs/throughput.md": "benchmarks take long",
    "docs/zookeeper.md": "needs a ZooKeeper: tests/conformance/test_zookeeper.py",
}
