"""The charts of the HTML report: durations, sizes, aborts by producer, throughput; as SVG. pure"""

import math
from collections.abc import Sequence

from ottla.audit.checks.shape import DURATION_BINS, Model, Shape, duration_of
from ottla.printable import html_text as escape

WIDTH, HEIGHT = 480, 190
_LEFT, _BOTTOM, _TOP = 44, 24, 14
_ROW = 20
_NAME = 170


def durations(shape: Shape) -> str:
    """Draw the durations of committed transactions, with a bar for each doubling."""
    by_bin = shape.grid.sum(axis=0)
    octaves = [int(by_bin[0])]
    octaves += [int(by_bin[at : at + 4].sum()) for at in range(1, DURATION_BINS, 4)]
    labels = ["0 ms", *(_time(duration_of(at + 2)) for at in range(1, DURATION_BINS, 4))]
    return _bars(octaves, labels, "Durations of committed transactions")


def sizes(shape: Shape) -> str:
    """Draw the numbers of records of committed transactions, with a bar for each doubling."""
    by_size = [int(many) for many in shape.grid.sum(axis=1)]
    labels = [_number(2**at) for at in range(len(by_size))]
    return _bars(by_size, labels, "Records in committed transactions")


def aborts(ended: Sequence[tuple[str, int, int]]) -> str:
    """Draw bars of committed and aborted transactions. `ended`: (producer, committed, aborted), most aborts first."""
    most = max((committed + aborted for _, committed, aborted in ended), default=0)
    if not most:
        return ""
    wide = WIDTH - _NAME - 90
    parts = []
    for at, (name, committed, aborted) in enumerate(ended):
        y = _TOP + at * _ROW
        shown = name if len(name) <= 22 else name[:21] + "…"
        title = f"<title>{escape(name)}</title>" if shown != name else ""
        width, part = wide * (committed + aborted) / most, wide * aborted / most
        parts.append(f'<text x="{_NAME - 8}" y="{y + 11}" text-anchor="end">{title}{escape(shown)}</text>')
        parts.append(
            f'<rect class="aborted" x="{_NAME}" y="{y}" width="{part:.1f}" height="13"/>'
            f'<rect class="committed" x="{_NAME + part:.1f}" y="{y}" width="{width - part:.1f}" height="13"/>'
        )
        parts.append(f'<text x="{_NAME + width + 6:.1f}" y="{y + 11}">{aborted:,} of {committed + aborted:,}</text>')
    return _svg(parts, _TOP + len(ended) * _ROW + 6, "Aborted transactions by producer")


def throughput(model: Model) -> str:
    """Draw the fitted model over the records in a transaction, both axes logarithmic."""
    sizes = [10 ** (at / 8) for at in range(41)]
    rates = [model.bytes_per_second(size) for size in sizes]
    high = max(rates)
    wide, tall = WIDTH - _LEFT - 10, HEIGHT - _TOP - _BOTTOM
    points = [
        f"{_LEFT + wide * at / (len(sizes) - 1):.1f},{_TOP + tall * (1 - rate / high):.1f}"
        for at, rate in enumerate(rates)
    ]
    parts = [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - 10}" y1="{_TOP + tall}" y2="{_TOP + tall}"/>',
        f'<polyline class="curve" points="{" ".join(points)}"/>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{high / 1e6:,.3g}</text>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 23}" text-anchor="end">MB/s</text>',
    ]
    for at in range(0, len(sizes), 8):
        x, side = _LEFT + wide * at / (len(sizes) - 1), "end" if at == len(sizes) - 1 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{side}">{_number(round(sizes[at]))}</text>')
    half = model.half_speed_records
    if 1 <= half <= sizes[-1]:
        x = _LEFT + wide * math.log10(half) / math.log10(sizes[-1])
        parts.append(f'<line class="stable" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_TOP + tall}"/>')
        parts.append(
            f'<text class="stable-label" x="{x - 5 if x > WIDTH / 2 else x + 5:.1f}" y="{_TOP + tall - 6}" '
            f'text-anchor="{"end" if x > WIDTH / 2 else "start"}">half speed at {half:,.0f}</text>'
        )
    return _svg(parts, HEIGHT, "Throughput of one producer by records in a transaction")


def share(committed: int, aborted: int, opened: int) -> str:
    """Draw a small bar of the fates of a partition's transactions."""
    total = committed + aborted + opened
    if not total:
        return '<svg viewBox="0 0 90 8" style="width:90px"><rect class="share-none" y="3" width="90" height="2"/></svg>'
    x, parts = 0.0, []
    for fate, many in (("committed", committed), ("aborted", aborted), ("open", opened)):
        if many:
            width = max(90 * many / total, 1.5)
            parts.append(f'<rect class="{fate}" x="{x:.1f}" width="{width:.1f}" height="8"/>')
            x += width
    return f'<svg viewBox="0 0 90 8" style="width:90px">{"".join(parts)}</svg>'


def _bars(values: Sequence[int], labels: Sequence[str], label: str) -> str:
    used = [at for at, value in enumerate(values) if value]
    if not used:
        return ""
    first, last = used[0], used[-1]
    shown = list(range(max(first - 1, 0), min(last + 2, len(values))))
    high = max(values)
    step = (WIDTH - _LEFT - 10) / len(shown)
    tall = HEIGHT - _TOP - _BOTTOM
    every = max(1, -(-len(shown) // 8))
    parts = [f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - 10}" y1="{_TOP + tall}" y2="{_TOP + tall}"/>']
    parts.append(f'<text x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{_number(high)}</text>')
    for place, at in enumerate(shown):
        x, height = _LEFT + place * step, tall * values[at] / high
        if values[at]:
            parts.append(
                f'<rect class="committed" x="{x + 1:.1f}" y="{_TOP + tall - max(height, 1):.1f}" '
                f'width="{step - 2:.1f}" height="{max(height, 1):.1f}">'
                f"<title>{labels[at]}: {values[at]:,}</title></rect>"
            )
        if place % every == 0:
            parts.append(f'<text x="{x + step / 2:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{labels[at]}</text>')
    return _svg(parts, HEIGHT, label)


def _svg(parts: Sequence[str], height: float, label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _number(value: int) -> str:
    for unit, scale in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= 10 * scale:
            return f"{value / scale:.0f}{unit}"
    return f"{value:,}"


def _time(milliseconds: float) -> str:
    for unit, scale in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= scale:
            return f"{milliseconds / scale:.0f} {unit}"
    return f"{milliseconds:.0f} ms"
