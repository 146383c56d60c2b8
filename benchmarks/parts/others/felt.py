"""Table of the effects on other clients: a line for each attack and broker. pure"""

from typing import Any, NamedTuple

Figures = dict[str, Any]

TITLE_WIDTH = 54


class Column(NamedTuple):
    """Column of the table: a figure of `stage.measure`."""

    key: str
    heading: str
    unit: str
    width: int
    digits: int


COLUMNS = (
    Column("p50_ms", "p50", "ms", 6, 2),
    Column("p99_ms", "p99", "ms", 7, 1),
    Column("longest_ms", "longest", "ms", 8, 1),
    Column("longest_cpu_ms", "in CPU", "ms", 8, 1),
    Column("longest_loop_ms", "loop's", "ms", 8, 1),
    Column("produce_longest_cpu_ms", "Produce", "ms", 8, 1),
    Column("reply_mb", "replies", "MB", 8, 2),
    Column("cpu_s", "CPU", "s", 6, 2),
    Column("before_mb", "RSS", "MB", 5, 0),
    Column("peak_mb", "most", "MB", 6, 0),
    Column("after_mb", "after", "MB", 6, 0),
)


def heading() -> str:
    names = " ".join(f"{column.heading:>{column.width}}" for column in COLUMNS)
    units = " ".join(f"{column.unit:>{column.width}}" for column in COLUMNS)
    return "\n".join(f"{'':{TITLE_WIDTH}} {'':6} {line}" for line in (names, units))


def line_of(title: str, broker: str, row: Figures) -> str:
    cells = " ".join(f"{row[column.key]:{column.width},.{column.digits}f}" for column in COLUMNS)
    return f"{title[:TITLE_WIDTH]:{TITLE_WIDTH}} {broker:6} {cells}  {', '.join(_list_remarks(row))}".rstrip()


def _list_remarks(row: Figures) -> list[str]:
    """Return remarks on the outcome, errors and rates of a row."""
    told = [] if row["outcome"] == "answered" else [row["outcome"]]
    told += [f"{row[name]} {name}" for name in ("lost", "errors", "refused") if row.get(name)]
    told += [f"{row[name]:,.0f} {name}" for name in ("transactions/s", "rebalances/s", "listeners") if name in row]
    if "bytes_each" in row:
        told.append(f"{row['bytes_each']:,.0f} bytes each")
    if not row["still_writes"]:
        told.append("WRITES NO MORE")
    return told
