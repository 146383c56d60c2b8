"""`/metrics` of `ottla serve`, as Prometheus asks for it."""

import http.client

import pytest

from tests.timeout import EVENT_TIMEOUT_S


@pytest.mark.slow
def test_prometheus_is_answered_with_what_the_loop_has_done(serve):
    served = serve("--admin-listen", "127.0.0.1:0").ready()
    host, port = served.process.stdout.readline().strip().removeprefix("admin http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=EVENT_TIMEOUT_S)
    for _ in range(2):
        connection.request("GET", "/metrics", headers={"Accept": "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"})
        reply = connection.getresponse()
        lines = reply.read().decode().splitlines()
        assert (reply.status, reply.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values["ottla_loop_turn_seconds_count"]) > 1
    assert float(values["ottla_loop_turn_seconds_sum"]) > 0
    assert float(values["process_cpu_seconds_total"]) > 0
    assert float(values["process_start_time_seconds"]) > 1_700_000_000
    # Between two scrapes that follow at once the loop may have done nothing but answer.
    assert 0 <= float(values["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"]) <= 1
    assert served.end() == 0
