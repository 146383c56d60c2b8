"""The test suites of librdkafka and franz-go against a broker, with consumers of the consumer protocol.

    python tests/conformance/client_suites.py librdkafka|franz-go ottla|ottla-three|apache [TEST...]

prints the outcome of each test, and of others than `TESTS` if they are named. The sources come from the registries of
npm and Go at run time. librdkafka is built once, into the cache folder, which takes some ten minutes.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cache_folder import CACHE
from targets import TARGETS, Broker

HERE = Path(__file__).parent
CONFLUENT_KAFKA_JAVASCRIPT = "1.10.1"
"""The package of npm that has the sources of librdkafka 2.15.1."""
BUILT = CACHE / f"librdkafka-of-confluent-kafka-javascript-{CONFLUENT_KAFKA_JAVASCRIPT}"
PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
AT_ONCE = 3
"""Tests of librdkafka at a time: they mostly wait."""
TEST_TIMEOUT_S = 600
FRANZ = "github.com/twmb/franz-go/pkg/kgo"
OVERRIDES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "true",
    "num.partitions": "4",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
# Tests with consumers of a group that need a broker. Mocks of librdkafka, and tests of other things, are left out.
TESTS = {
    "librdkafka": [
        *("0018", "0022", "0026", "0029", "0030", "0033", "0034", "0040", "0050", "0051", "0056", "0059"),
        *("0061", "0064", "0067", "0069", "0083", "0084", "0089", "0091", "0093", "0098", "0099", "0102", "0107"),
        *("0109", "0112", "0118", "0122", "0127", "0129", "0130", "0132", "0137", "0140"),
        # Its third test, with a rebalance callback, now and then waits for ever, against Apache Kafka too.
        *("0045:test_regex", "0045:Resubscribe", "0045:without rebalance callback"),
        *("0081:IncrementalAlterConfigs", "0081:DescribeConfigs_groups", "0081:ListConsumerGroups"),
        *("0081:DescribeConsumerGroups", "0081:DeleteGroups", "0081:DeleteConsumerGroupOffsets"),
        *("0081:AlterConsumerGroupOffsets", "0081:ListConsumerGroupOffsets", "0113:_assign_", "0113:subscribe_with_cb"),
        *("0113:subscribe_no_cb", "0113:change_subscription", "0113:delete_topic", "0113:add_partition"),
        *("0113:unsubscribe", "0113:wildcard", "0113:when_rebalancing", "0113:max_poll_interval_exceeded"),
        *("0113:multiple_subscription_changes", "0113:commit_during_rebalance", "0113:incremental_rebalances"),
    ],
    "franz-go": ["TestGroupETL", "TestTxnEtl", "TestGroupSimple", "Test848RegexBrokerResolves"],
}
# Tests with acks, transactions, idempotence, groups or metadata of several brokers.
OF_THREE = {
    "librdkafka": ["0008", "0090", "0094", "0103", "0112", "0118", "0125"],
    "franz-go": TESTS["franz-go"],
}
LACKING = {"librdkafka": ("npm", "gcc", "g++", "make"), "franz-go": ("go",)}


def lacks(suite: str) -> str:
    """Return the reason why a suite cannot run here, or an empty string."""
    missing = [program for program in LACKING[suite] if shutil.which(program) is None]
    return f"no {missing[0]} on the path" if missing else ""


def build_librdkafka() -> Path:
    """Return the folder of the built tests. The first call fetches and builds them."""
    tests = BUILT / "package" / "deps" / "librdkafka" / "tests"
    if BUILT.exists():
        return tests
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        run = _runner(Path(scratch))
        run("npm", "pack", "--silent", f"@confluentinc/kafka-javascript@{CONFLUENT_KAFKA_JAVASCRIPT}")
        run("tar", "xzf", next(Path(scratch).glob("*.tgz")).name)
        run = _runner(Path(scratch) / tests.parent.relative_to(BUILT))
        run("bash", "./configure", "--disable-gssapi", "--disable-lz4-ext")
        run("make", "libs")
        run("make", "-C", "tests", "build")
        Path(scratch).rename(BUILT)
        Path(scratch).mkdir()
    return tests


def _runner(folder):
    def run(*command):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600)
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"

    return run


def run_librdkafka(broker: Broker, names: Iterable[str], directory: Path) -> Iterator[tuple[str, str, float]]:
    """Yield name, outcome and seconds of each test.

    A number runs all tests whose names begin with it, NUMBER:TEXT those parts of them whose names have the text.
    """
    tests = build_librdkafka()
    conf = directory / "test.conf"
    conf.write_text(f"bootstrap.servers={broker.bootstrap}\ntest.timeout.multiplier=2\ntest.topic.random=true\n")

    def run(name):
        number, _, part = name.partition(":")
        report = directory / f"{name}.json"
        environment = (
            os.environ
            | {
                "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
                "RDKAFKA_TEST_CONF": str(conf),
                "TEST_CONSUMER_GROUP_PROTOCOL": "consumer",
                "TEST_KAFKA_VERSION": "4.3.1",
                "TEST_REPORT": str(report),
                "TESTS": number,
            }
            | ({"SUBTESTS": part} if part else {})
        )
        with (directory / f"{name}.log").open("wb") as log:
            command = ["./test-runner", "-p1", "-L"]
            process = subprocess.Popen(command, cwd=tests, env=environment, stdout=log, stderr=log)
            try:
                process.wait(TEST_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return list(_outcomes(name, report))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for rows in pool.map(run, names):
            yield from rows


def _outcomes(name, report):
    try:
        rows = json.loads(report.read_text())["tests"]
    except (OSError, ValueError):
        yield name, FAILED, TEST_TIMEOUT_S  # it crashed, or did not end
        return
    number, _, part = name.partition(":")
    for test, row in rows.items():
        seconds = float(row["duration"])
        if not test.startswith(number) or test.endswith(("_local", "_mock")) or (part and seconds < 0.01):
            continue  # not asked for, needs no broker, or does not have the part
        yield (
            f"{test}:{part}" if part else test,
            {"PASSED": PASSED, "SKIPPED": SKIPPED}.get(row["state"], FAILED),
            seconds,
        )


def run_franz(broker: Broker, names: Iterable[str], directory: Path) -> Iterator[tuple[str, str, float]]:
    """Yield name, outcome and seconds of each test and of its cases."""
    environment = os.environ | {
        "KGO_SEEDS": broker.bootstrap,
        "KGO_LOG_LEVEL": "none",
        "KGO_TEST_RF": str(broker.bootstrap.count(",") + 1),
        "KGO_TEST_RECORDS": "20000",
    }
    command = ["go", "test", "-json", "-count=1", "-timeout=20m", "-run", f"^({'|'.join(names)})$", FRANZ]
    with (directory / "franz-go.log").open("wb") as log:
        done = subprocess.run(
            command, cwd=HERE / "drivers" / "go", env=environment, stdout=subprocess.PIPE, stderr=log, timeout=1500
        )
    (directory / "franz-go.json").write_bytes(done.stdout)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    outcomes = {"pass": PASSED, "skip": SKIPPED, "fail": FAILED}
    for event in events:
        if "Test" in event and event["Action"] in outcomes:
            yield event["Test"], outcomes[event["Action"]], event["Elapsed"]


RUN = {"librdkafka": run_librdkafka, "franz-go": run_franz}


def main(suite: str, target: str, *names: str) -> int:
    directory = Path(tempfile.mkdtemp(prefix=f"{suite}-{target}-"))
    broker = TARGETS[target](directory / "broker", OVERRIDES).start()
    failed = 0
    try:
        print(f"{suite} against {broker.name}, logs in {directory}", flush=True)
        for name, outcome, seconds in RUN[suite](broker, names or TESTS[suite], directory):
            print(f"{outcome} {name} {seconds:.1f} s", flush=True)
            failed += outcome == FAILED
    finally:
        broker.stop()
    print(f"{failed} failed", time.strftime("%H:%M:%S"))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
