"""Figures of the broker benchmark with their targets, as a table or as JSON. pure"""

import json
from typing import Any, NamedTuple

Figures = dict[str, float | None]


class Row(NamedTuple):
    key: str
    label: str
    unit: str
    higher_is_better: bool = False
    target: float | None = None
    ratio_target: float | None = None  # of ours to Apache Kafka's


ROWS = (
    Row("ready_s", "ready after", "s", target=0.5),
    Row("help_s", "ottla --help", "s", target=0.15),
    Row("idle_mb", "resident memory, idle", "MB", target=60),
    Row("loaded_mb", "resident memory, loaded", "MB"),
    Row("produce_large_mb_s", "produce, batches up to 1 MB", "MB/s", higher_is_better=True),
    Row("produce_large_cpu_s_gb", "  broker CPU", "s/GB", target=2.2),
    Row("produce_16k_mb_s", "produce, batches of 16 KB", "MB/s", higher_is_better=True),
    Row("produce_16k_cpu_s_gb", "  broker CPU", "s/GB"),
    Row("consume_mb_s", "consume", "MB/s", higher_is_better=True),
    Row("consume_cpu_s_gb", "  broker CPU", "s/GB", target=1.0),
    Row("tx1_per_s", "one-record transactions, 1 producer", "/s", higher_is_better=True),
    Row("tx1_cpu_ms", "  broker CPU each", "ms", target=0.45, ratio_target=1 / 8),
    Row("tx1_commit_p50_ms", "  commit p50", "ms", ratio_target=0.75),
    Row("tx1_commit_p99_ms", "  commit p99", "ms", ratio_target=0.2),
    Row("tx16_per_s", "one-record transactions, 16 producers", "/s", higher_is_better=True, target=2500),
    Row("tx16_cpu_ms", "  broker CPU each", "ms"),
    Row("tx16_commit_p50_ms", "  commit p50", "ms"),
    Row("tx16_commit_p99_ms", "  commit p99", "ms"),
    Row("round_trip_p50_ms", "produce to consume p50", "ms"),
    Row("round_trip_p99_ms", "produce to consume p99", "ms"),
)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _target(row: Row, compared: bool) -> str:
    words = []
    if row.target is not None:
        words.append(f"{'>=' if row.higher_is_better else '<='} {_number(row.target)}")
    if row.ratio_target is not None and compared:
        words.append(f"ratio <= {row.ratio_target:.3g}")
    return ", ".join(words)


def is_reached(row: Row, ours: float | None, ratio: float | None) -> bool | None:
    """Return whether a figure reaches its targets; None without a target or a measurement."""
    verdicts = []
    if row.target is not None and ours is not None:
        verdicts.append(ours >= row.target if row.higher_is_better else ours <= row.target)
    if row.ratio_target is not None and ratio is not None:
        verdicts.append(ratio <= row.ratio_target)
    return all(verdicts) if verdicts else None


def ratio_of(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None


def as_text(results: dict[str, Figures], machine: dict[str, Any]) -> str:
    """Return a table with one column per broker. The first broker is Ottla; the ratio is the first to the second."""
    stands_on = (
        f"{machine['python']}; {machine['cores']} cores, load {machine['load_1_min']:.1f} before the start; "
        f"the kernel alone takes {machine['write_cpu_s_gb']:.2f} CPU s to write 1 GB"
    )
    names = list(results)
    compared = len(names) == 2
    head = ["", *names, *(["ratio"] if compared else []), "unit", "target", ""]
    table = [head]
    for row in ROWS:
        values = [results[name].get(row.key) for name in names]
        if all(value is None for value in values):
            continue
        ratio = ratio_of(values[0], values[1]) if compared else None
        verdict = {True: "reached", False: "MISSED", None: ""}[is_reached(row, values[0], ratio)]
        ratios = [_number(ratio)] if compared else []
        table.append([row.label, *map(_number, values), *ratios, row.unit, _target(row, compared), verdict])
    widths = [max(len(line[column]) for line in table) for column in range(len(head))]
    numeric = range(1, len(names) + 1 + compared)
    lines = [
        "  ".join(
            cell.rjust(width) if column in numeric else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    return "\n".join([stands_on, "", lines[0], "-" * max(map(len, lines)), *lines[1:]])


def as_json(results: dict[str, Figures], machine: dict[str, Any]) -> str:
    """Return JSON with the figures by broker, and the ratios of the first broker to the second."""
    document: dict[str, object] = {"machine": machine, "brokers": results}
    if len(results) == 2:
        ours, theirs = results.values()
        document["ratios"] = {row.key: ratio_of(ours.get(row.key), theirs.get(row.key)) for row in ROWS}
    return json.dumps(document, indent=2)
