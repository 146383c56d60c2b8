"""Metrics at `/metrics`. No number of topics or groups makes the page delay other work of the broker."""

import os
import re
import shutil
import subprocess

import pytest

from ottla.admin.metrics import groups, partitions
from ottla.admin.metrics.exposition import labels
from ottla.admin.metrics.families import families
from ottla.admin.metrics.page import MetricsPage
from ottla.broker.metrics import Histogram
from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, LEDGER_PARTITIONS, Member, Producer, batch, commit, coordinating, produce
from tests.api.consumer_groups import Member as ConsumerMember
from tests.unit.admin.test_http_bounded import MOST_UNCHARGED_CALLS

DASHBOARD_7589 = (
    'sum(rate(kafka_topic_partition_current_offset{instance="$instance", topic=~"$topic"}[1m])) by (topic)',
    'sum(kafka_consumergroup_lag{instance="$instance",topic=~"$topic"}) by (consumergroup, topic)',
    "sum(delta(kafka_topic_partition_current_offset{instance=~'$instance', topic=~\"$topic\"}[5m])/5) by (topic)",
    "sum(delta(kafka_consumergroup_current_offset{instance=~'$instance',topic=~\"$topic\"}[5m])/5) by "
    "(consumergroup, topic)",
    'sum by(topic) (kafka_topic_partitions{instance="$instance",topic=~"$topic"})',
    "label_values(kafka_consumergroup_current_offset, job)",
    'label_values(kafka_consumergroup_current_offset{job=~"$job"}, instance)',
    "label_values(kafka_topic_partition_current_offset{instance='$instance',topic!='__consumer_offsets'}, topic)",
)
STRIMZI = """
kafka_cluster_partition_replicascount kafka_controller_controllerstats_uncleanleaderelections_total
kafka_controller_kafkacontroller_activecontrollercount kafka_controller_kafkacontroller_offlinepartitionscount
kafka_log_log_size kafka_network_socketserver_networkprocessoravgidle_percent
kafka_server_brokertopicmetrics_bytesin_total kafka_server_brokertopicmetrics_bytesout_total
kafka_server_brokertopicmetrics_messagesin_total kafka_server_brokertopicmetrics_totalfetchrequests_total
kafka_server_brokertopicmetrics_totalproducerequests_total
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
kafka_server_replicamanager_leadercount kafka_server_replicamanager_partitioncount
kafka_server_replicamanager_underreplicatedpartitions kafka_server_socket_server_metrics_connection_count
process_open_fds kafka_broker_info kafka_topic_partition_in_sync_replica kafka_topic_partition_leader_is_preferred
kafka_topic_partition_oldest_offset kafka_topic_partition_replicas kafka_topic_partition_under_replicated_partition
"""
CONFLUENT = """
kafka_controller_kafkacontroller_globalpartitioncount kafka_controller_kafkacontroller_globaltopiccount
kafka_coordinator_group_groupmetadatamanager_numgroups kafka_coordinator_group_groupmetadatamanager_numgroupsstable
kafka_log_log_logendoffset kafka_log_log_logstartoffset kafka_network_requestmetrics_errorspersec
kafka_network_requestmetrics_requestspersec kafka_network_requestmetrics_totaltimems
kafka_server_brokertopicmetrics_bytesinpersec kafka_server_brokertopicmetrics_bytesoutpersec
kafka_server_brokertopicmetrics_messagesinpersec kafka_server_brokertopicmetrics_totalfetchrequestspersec
kafka_server_brokertopicmetrics_totalproducerequestspersec kafka_server_kafkaserver_brokerstate
kafka_server_socketservermetrics_connection_count process_cpu_seconds_total
"""
HOSTILE = 'a"b\\c\nd} 1\n# TYPE x é'
_SERIES = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\["\\n])*)"')


class Scraped:
    """A broker in memory, and requests for its metrics page."""

    def __init__(self, broker):
        self.broker = broker
        self.parts = broker.assembly.broker
        self.parts.metrics.measure(broker.clock.monotonic_ms, Histogram((1, 10)))
        self.page = MetricsPage(self.parts, broker.clock, 1_000)

    def text(self):
        pieces, done = [], []

        async def send(piece):
            pieces.append(piece)

        async def show():
            response = await self.page.route.handler(None)
            assert response.content_type == "text/plain; version=0.0.4; charset=utf-8"
            await response.body(send)

        turns = self.broker.turns
        turns.event(lambda: turns.start(show(), done.append, self.broker.bugs.append))
        while not done and not self.broker.bugs:
            self.broker.advance()
        assert self.broker.bugs == []
        return b"".join(pieces).decode()

    def series(self):
        """Return {(name, labels): value}, parsed by the rules of the format."""
        found = {}
        for line in self.text().removesuffix("\n").split("\n"):
            if line.startswith("#"):
                continue
            match = _SERIES.fullmatch(line)
            assert match, line
            row = tuple(sorted(_LABEL.findall(match[2] or "")))
            assert (match[1], row) not in found, line
            found[match[1], row] = float(match[3])
        return found

    def value(self, name, /, **wanted):
        return self.series()[name, tuple(sorted((key, str(value)) for key, value in wanted.items()))]

    def names(self):
        return {name for name, _ in self.series()}


@pytest.fixture
def scraper():
    return Scraped(coordinating(log_flush_interval_messages=1))


@pytest.fixture
def full_broker(scraper):
    """Fill a broker with at least one of everything."""
    broker = scraper.broker
    producer = Producer(broker)
    producer.begin(0)
    producer.end()
    Producer(broker, "hanging").begin(1)
    produce(broker, batch(3), partition=2)
    produce(broker, batch(), topic="nowhere")
    commit(broker, (LEDGER, 2, 1))
    Member(broker, "members").settle()
    broker.advance(100)
    return scraper


def test_every_series_of_dashboard_7589_is_exported(full_broker):
    asked = {name for query in DASHBOARD_7589 for name in re.findall(r"kafka_\w+", query)} - {"kafka_exporter"}
    assert len(asked) == 4
    assert asked <= full_broker.names()


@pytest.mark.parametrize("dashboards", [STRIMZI, CONFLUENT], ids=["strimzi", "confluent"])
def test_series_of_strimzi_and_confluent_dashboards_are_exported(full_broker, dashboards):
    assert {*dashboards.split()} <= full_broker.names()


def test_the_page_has_every_metric_of_the_list_with_its_labels_and_nothing_else(full_broker):
    known = {f"{each.name}{suffix}": {*each.labels} for each in families() for suffix in each.suffixes}
    found = full_broker.series()
    assert {name for name, _ in found} == {*known}
    for name, row in found:
        assert {key for key, _ in row} <= known[name] | {"le"}, name


def test_a_name_is_written_once_with_its_help_and_type(full_broker):
    lines = full_broker.text().splitlines()
    helped = [line.split()[2] for line in lines if line.startswith("# HELP")]
    typed = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert helped == typed and len({*helped}) == len(helped)
    assert {*helped} == {each.name for each in families()}


def test_metric_values_match_the_state_of_the_broker(full_broker):
    series = full_broker.series()

    def value(name, **wanted):
        return series[name, tuple(sorted((key, str(value)) for key, value in wanted.items()))]

    assert value("kafka_topic_partitions", topic=LEDGER) == 4
    assert value("kafka_topic_partition_current_offset", topic=LEDGER, partition=2) == 3
    assert value("kafka_consumergroup_current_offset", consumergroup="g", topic=LEDGER, partition=2) == 1
    assert value("kafka_consumergroup_lag", consumergroup="g", topic=LEDGER, partition=2) == 2
    assert value("kafka_consumergroup_lag_sum", consumergroup="g", topic=LEDGER) == 2
    assert value("kafka_consumergroup_members", consumergroup="members") == 1
    assert value("kafka_coordinator_group_groupmetadatamanager_numgroupsstable") == 1
    assert value("kafka_server_brokertopicmetrics_messagesin_total", topic=LEDGER) == 5
    assert value("kafka_server_brokertopicmetrics_messagesin_total") == 5
    assert value("kafka_server_brokertopicmetrics_totalproducerequests_total", topic=LEDGER) == 3
    unknown = {"request": "Produce", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert value("kafka_network_requestmetrics_errors_total", **unknown) == 1
    assert value("ottla_partition_last_stable_offset", topic=LEDGER, partition=1) == 0
    assert value("ottla_partition_open_transactions", topic=LEDGER, partition=1) == 1
    assert value("ottla_transactions", state="Ongoing") == 1
    assert value("ottla_transactions_ended_total", outcome="commit") == 1
    assert value("ottla_transaction_marker_phase_seconds_count") == 1


def test_groups_are_counted_by_protocol_and_state(full_broker):
    ConsumerMember(full_broker.broker, "m", "of-consumers").join([LEDGER])
    metrics = "kafka_server_group_coordinator_metrics"
    assert full_broker.value(f"{metrics}_group_count", protocol="consumer") == 1
    assert full_broker.value(f"{metrics}_group_count", protocol="classic") == 2
    assert full_broker.value(f"{metrics}_consumer_group_count", state="Stable") == 1
    assert full_broker.value(f"{metrics}_consumer_group_count", state="Empty") == 0
    assert full_broker.value("kafka_coordinator_group_groupmetadatamanager_numgroups") == 2
    assert full_broker.value(f"{metrics}_consumer_group_rebalance_count") == 1
    assert full_broker.value(f"{metrics}_group_completed_rebalance_count") == 1


def test_the_stable_lag_of_a_group_excludes_open_transactions(full_broker):
    commit(full_broker.broker, (LEDGER, 1, 0))
    place = {"consumergroup": "g", "topic": LEDGER, "partition": 1}
    assert full_broker.value("kafka_consumergroup_lag", **place) == 1
    assert full_broker.value("ottla_consumergroup_stable_lag", **place) == 0


def test_a_last_stable_offset_that_stays_grows_old_until_it_moves(scraper):
    producer = Producer(scraper.broker)
    producer.begin(0)
    name, place = "ottla_partition_last_stable_offset_age_seconds", {"topic": LEDGER, "partition": 0}
    assert scraper.value(name, **place) < 1
    scraper.broker.advance(30_000)
    assert scraper.value(name, **place) == pytest.approx(30, abs=1)
    assert scraper.value("ottla_transaction_oldest_open_seconds") == pytest.approx(30, abs=1)
    producer.end()
    scraper.broker.advance(100)
    assert name not in scraper.names()
    assert scraper.value("ottla_transaction_oldest_open_seconds") == 0


def test_rates_and_quantiles_are_those_of_the_last_minutes(scraper):
    broker = scraper.broker
    scraper.text()
    broker.advance(9_000)
    produce(broker, batch(100))
    broker.advance(1_000)
    bytes_in = scraper.parts.metrics.bytes_in
    rate = scraper.value("kafka_server_BrokerTopicMetrics_FifteenMinuteRate", name="BytesInPerSec", topic=LEDGER)
    assert rate == pytest.approx(bytes_in / 10, rel=0.05)
    quantile = {"request": "Produce", "quantile": "0.99"}
    assert scraper.value("kafka_network_requestmetrics_totaltimems", **quantile) > 0
    for _ in range(20):
        broker.advance(31_000)
        scraper.text()
    assert scraper.value("kafka_network_requestmetrics_totaltimems", **quantile) == 0
    later = scraper.value("kafka_server_BrokerTopicMetrics_FifteenMinuteRate", name="BytesInPerSec", topic=LEDGER)
    assert 0 < later < rate


def test_hostile_names_cannot_leave_their_label(scraper):
    commit(scraper.broker, (LEDGER, 0, 0), group_id=HOSTILE)
    scraper.broker.advance(100)
    assert labels(consumergroup=HOSTILE) == 'consumergroup="a\\"b\\\\c\\nd} 1\\n# TYPE x é"'
    rows = [dict(row) for name, row in scraper.series() if name == "kafka_consumergroup_members"]
    assert [row["consumergroup"].replace("\\n", "\n").replace('\\"', '"') for row in rows] == [
        HOSTILE.replace("\\", "\\\\")
    ]


def test_partitions_groups_and_offsets_beyond_a_number_are_left_out_and_counted(full_broker, monkeypatch):
    everything = len(full_broker.series())
    monkeypatch.setattr(partitions, "MOST_PARTITIONS", LEDGER_PARTITIONS - 1)
    monkeypatch.setattr(groups, "MOST_GROUPS", 1)
    monkeypatch.setattr(groups, "MOST_OFFSETS", 0)
    series = full_broker.series()
    assert len(series) < everything
    told = {dict(row)["of"]: value for (name, row), value in series.items() if name == "ottla_metrics_left_out"}
    assert told == {"partitions": LEDGER_PARTITIONS, "groups": 1, "offsets": 1}
    assert ("kafka_server_brokertopicmetrics_messagesin_total", ()) in series
    assert not any(("topic", LEDGER) in row for _, row in series)


def test_a_group_with_a_name_of_kilobytes_has_no_series(scraper):
    commit(scraper.broker, (LEDGER, 0, 0), group_id="g" * 30_000)
    scraper.broker.advance(100)
    assert scraper.value("ottla_metrics_left_out", of="groups") == 1
    assert len(scraper.text()) < 60_000


def test_a_page_of_thousands_of_series_is_written_in_shares(scraper):
    broker = scraper.broker
    broker.create_topic("wide", 500)
    broker.advance(1_000)
    with broker.scales.weigh():
        text = scraper.text()
    assert text.count("\n") > 5_000
    assert broker.scales.most_us <= 2 * SHARE_US
    assert broker.scales.uncharged_calls <= MOST_UNCHARGED_CALLS


def test_two_who_scrape_at_once_get_a_whole_page_each(full_broker):
    broker, pages, done = full_broker.broker, ([], []), []

    def start(pieces):
        async def send(piece):
            pieces.append(piece)
            await broker.turns.pause()

        async def show():
            await (await full_broker.page.route.handler(None)).body(send)

        broker.turns.event(lambda: broker.turns.start(show(), done.append, broker.bugs.append))

    for pieces in pages:
        start(pieces)
    while len(done) < 2:
        broker.advance()
    for pieces in pages:
        names = {line.split("{")[0].split(" ")[0] for line in b"".join(pieces).decode().splitlines() if line[0] != "#"}
        assert "process_start_time_seconds" in names and "kafka_brokers" in names


def test_the_parser_of_prometheus_reads_it(full_broker):
    parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client (pip install '.[test]')")
    commit(full_broker.broker, (LEDGER, 0, 0), group_id=HOSTILE)
    full_broker.broker.advance(100)
    found = {each.name: each for each in parser.text_string_to_metric_families(full_broker.text())}
    for family in families():
        name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
        assert found[name].type == family.kind.replace("untyped", "unknown")
        assert found[name].documentation == family.help
    members = {sample.labels["consumergroup"] for sample in found["kafka_consumergroup_members"].samples}
    assert members == {HOSTILE, "g", "members"}


OTHERS_NAMES = ("kafka_",)
"""Whose rules differ: kafka_exporter has `_sum`, jmx_exporter capitals."""


def test_promtool_finds_no_fault_outside_kafka_metric_names(full_broker):
    promtool = shutil.which(os.environ.get("OTTLA_TEST_PROMTOOL", "promtool"))
    if promtool is None:
        pytest.skip("needs promtool of Prometheus, on the PATH or in OTTLA_TEST_PROMTOOL")
    checked = subprocess.run([promtool, "check", "metrics"], input=full_broker.text(), capture_output=True, text=True)
    said = [line for line in (checked.stdout + checked.stderr).splitlines() if line]
    assert checked.returncode in (0, 3)  # 3: lint, and the text is sound
    assert [line for line in said if not line.startswith(OTHERS_NAMES)] == []


def test_requests_of_a_fetch_are_those_of_consumers_too(full_broker):
    row = {"partition": 2, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic": LEDGER, "partitions": [row]}]
    full_broker.broker.call(K.FETCH, 4, max_wait_ms=0, max_bytes=1 << 20, topics=topics)
    for request in ("Fetch", "FetchConsumer"):
        assert full_broker.value("kafka_network_requestmetrics_requests_total", request=request, version=4) == 1
    assert E.NONE.name not in {dict(row).get("error") for _, row in full_broker.series()}
