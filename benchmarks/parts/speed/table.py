"""Tables in Markdown, which are also readable in a terminal. pure"""

from collections.abc import Mapping, Sequence

from parts.speed.rows import FLOOR, FLOORS, ROWS, Row, Samples, is_reached, ratios_of, spread, values_of

Grown = Mapping[str, Mapping[int, Sequence[tuple[float, float]]]]
"""By label and number: for each round the microseconds with few, and with this number."""


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def three(values: Sequence[float]) -> str:
    """Return the minimum, median and maximum as text."""
    return " / ".join(number(value) for value in spread(values)) if values else "-"


def goal_of(row: Row) -> str:
    if row.goal is None:
        return ""
    return f"{'at least ' if row.higher_is_better else ''}{row.goal:g}"


def align(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns. The first line is its head."""
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(lines[0]))]
    head, *rest = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([head, rule, *rest])


def of_brokers(samples: Samples, columns: Sequence[str], judged: Sequence[str], connections: int) -> str:
    """Return a table with a row for each figure. Goals apply to the columns in `judged`."""
    lines = [["broker CPU: minimum / median / maximum", "unit", "goal", *columns]]
    for row in ROWS:
        cells = []
        for column in columns:
            values = values_of(samples, column, row) if row.relative_to is None or column in judged else ()
            missed = column in judged and is_reached(row, values) is False
            cells.append(three(values) + (", **missed**" if missed else ""))
        if any(cell != "-" for cell in cells):
            unit = "" if row.unit == "x" else row.unit
            lines.append([row.label.format(connections=connections), unit, goal_of(row), *cells])
    return align(lines)


def of_ratios(samples: Samples, columns: Sequence[str], connections: int) -> str:
    """Return a table of the medians of the ratios to the first column in the same round, with a row for each figure."""
    base, *others = columns
    ratios = ratios_of(samples, base)
    lines = [[f"relative to {base}, median of the rounds", *others]]
    for row in ROWS:
        cells = [f"{ratios[column][row.key]:.2f}" if row.key in ratios[column] else "-" for column in others]
        if any(cell != "-" for cell in cells):
            lines.append([row.label.format(connections=connections), *cells])
    return align(lines)


def of_floors(samples: Samples) -> str:
    floors = samples[FLOOR]
    return align(
        [["CPU s/GB", *FLOORS], ["minimum / median / maximum", *(three(floors[key]) for key in FLOORS.values())]]
    )


def of_growth(grown: Grown) -> str:
    """Return a table with a row for each kind: microseconds, and the median of the ratios to a broker with few."""
    sizes = sorted({size for found in grown.values() for size in found})
    lines = [["CPU of one request, us", *(f"{size:,}" for size in sizes)]]
    for label, found in grown.items():
        cells = []
        for size in sizes:
            pairs = found.get(size, ())
            ratio = spread([many / few for few, many in pairs]).median if pairs else 0.0
            cells.append(f"{three([many for _, many in pairs])}; {ratio:.2f}" if pairs else "")
        lines.append([label, *cells])
    return align(lines)


def between_markers(page: str, name: str, body: str) -> str:
    """Return the page with `body` in place of the text between the comments `speed NAME` and `/speed NAME`."""
    opening, closing = f"<!-- speed {name} -->", f"<!-- /speed {name} -->"
    before, found, rest = page.partition(opening)
    _, ended, after = rest.partition(closing)
    if not found or not ended:
        raise ValueError(f"the page has no lines {opening} and {closing}, one after the other")
    return f"{before}{opening}\n{body}\n{closing}{after}"
