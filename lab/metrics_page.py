"""Renders docs/metrics.md from the list of all metrics: `python -m lab.metrics_page`. free"""

import sys

from ottla.broker.admin.metrics.exposition import Family
from ottla.broker.admin.metrics.families import families
from ottla.broker.admin.metrics.groups import MOST_GROUPS, MOST_OFFSETS
from ottla.broker.admin.metrics.partitions import MOST_PARTITIONS

_HEAD = f"""# Metrics

`make docs` makes this page from `ottla/broker/admin/metrics/families.py`.

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
| Strimzi's dashboards | the names ending in `_total`; what is about a JVM, pods or volumes stays empty |
| Confluent's dashboards | the names ending in `persec`. Label the target with `job="kafka-broker"` and an `env` |
| kafka-ui | bytes per second: `metrics: {{type: PROMETHEUS, port: 9644}}`, if it needs no token for the port |

## How much it is

A page is written while it is sent, in shares of 2 ms, so clients are served in between and the numbers of a page are
of some milliseconds rather than of one moment. One of a new broker, 1,750 series with those of the internal topics,
takes 3 ms of CPU with all that HTTP needs; one of 5,000 is written in 3.5 ms, of which no turn has more than 1.5.

Clients name topics and groups, and may name any number of them. {MOST_PARTITIONS} partitions have series of their own,
{MOST_GROUPS} groups, and {MOST_OFFSETS} offsets of groups; a group with a name of more than 249 characters has none.
What is left out is counted in `ottla_metrics_left_out`. Counters without a topic go on counting all. Versions, errors
and APIs are Kafka's, so their number is bounded.

Without an admin port nothing is measured that needs a look at the clock, and nothing is collected: what remains are
integers that are added to. Durations begin when the broker does, quantiles and idle shares with the first scrape.
"""

_TABLE = """
## {title}

{text}

| name | type | labels | meaning |
|---|---|---|---|
"""

_EXPORTER = (
    "As danielqsj/kafka_exporter has them. A consumer that reads committed may "
    "have a lag that only the end of a transaction takes away: `ottla_consumergroup_stable_lag` tells the two apart."
)
_JMX = (
    "As jmx_exporter makes them of Kafka's own, under the rules of Strimzi or of Confluent. What clients produce is "
    "counted; Kafka counts markers and the records of coordinators too. Failed requests are told by request, "
    "not by topic."
)
_OWN = "What only this broker can tell, and what every process tells."


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
