"""Renders docs/metrics.md from the list of all metrics: `python -m lab.metrics_page`. free"""

import sys

from ottla.admin.metrics.exposition import Family
from ottla.admin.metrics.families import families
from ottla.admin.metrics.groups import MOST_GROUPS, MOST_OFFSETS
from ottla.admin.metrics.partitions import MOST_PARTITIONS

_HEAD = f"""# Metrics

`make docs` makes this page from `ottla/admin/metrics/families.py`.

A broker with an [admin port](admin-port.md) shows its metrics at `/metrics`, as text for Prometheus:

```console
$ ottla serve --admin-listen 127.0.0.1:9644
$ curl http://127.0.0.1:9644/metrics
```

```yaml
scrape_configs:
  - job_name: ottla
    static_configs:
      - targets: ["127.0.0.1:9644"]
    # If the port has a token:
    # authorization: {{credentials_file: admin.token}}
```

`docker compose --profile monitoring up --detach` starts the broker with Prometheus and Grafana, and
[a dashboard of ours](grafana/ottla.json) at http://localhost:3000.

## What reads it

| tool | what it finds |
|---|---|
| Grafana dashboard 7589, and the others for `kafka_exporter` | every series that it asks for. No exporter is needed |
| Strimzi's dashboards | the names ending in `_total`; panels about a JVM, pods or volumes stay empty |
| Confluent's dashboards | the names ending in `persec`. Label the target with `job="kafka-broker"` and an `env` |
| kafka-ui | bytes per second: `metrics: {{type: PROMETHEUS, port: 9644}}`, if it needs no token for the port |

## Size and cost

The broker writes a page while it sends it, in steps of 2 ms, and serves clients between the steps. So the numbers of a
page may be some milliseconds apart. The page of a new broker has 1,750 series, with those of the internal topics, and
takes 3 ms of CPU, HTTP included; a page of 5,000 series is written in 3.5 ms, and no turn of it takes more than 1.5.

Clients may create any number of topics and groups. {MOST_PARTITIONS} partitions, {MOST_GROUPS} groups and
{MOST_OFFSETS} offsets of groups have series of their own; a group with a name of more than 249 characters has none.
`ottla_metrics_left_out` counts the others. Counters without a topic count all topics. Versions, errors and APIs are
Kafka's, so their number is bounded.

Without an admin port the broker only adds to integers: it measures no durations and collects nothing. Durations are
measured from the start of the broker, quantiles and idle shares from the first scrape.
"""

_TABLE = """
## {title}

{text}

| name | type | labels | meaning |
|---|---|---|---|
"""

_EXPORTER = (
    "The metrics of danielqsj/kafka_exporter. A read_committed consumer may have a lag that only the end of a "
    "transaction removes: `ottla_consumergroup_stable_lag` is the lag without that part."
)
_JMX = (
    "Kafka's own metrics, as jmx_exporter names them under the rules of Strimzi or of Confluent. The counters of "
    "produced records count those of clients; Kafka counts markers and the records of coordinators too. Failed "
    "requests are counted by API, not by topic."
)
_OWN = "Metrics that only Ottla has, and those that every process has."


def render() -> str:
    """Return the page: a row for each metric, in the order of the list."""
    every = families()
    exporter = [family for family in every if _is_exporters(family)]
    own = [family for family in every if not family.name.startswith("kafka_")]
    jmx = [family for family in every if family not in exporter and family not in own]
    sections = (("Names of kafka_exporter", _EXPORTER, exporter), ("Names of Kafka", _JMX, jmx), ("Our own", _OWN, own))
    return _HEAD + "".join(
        _TABLE.format(title=title, text=text) + "".join(map(_row, rows)) for title, text, rows in sections
    )


def _is_exporters(family: Family) -> bool:
    return family.name.startswith(("kafka_topic_", "kafka_consumergroup_", "kafka_broker"))


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |\n"


if __name__ == "__main__":
    sys.stdout.write(render())
