"""The price of a transaction: the line fitted to measured times, and the plot of both."""

import importlib
import math
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
SIZES = [1, 10, 100, 1000, 10_000]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return lambda name: importlib.import_module(f"parts.transaction_size.{name}")


@pytest.fixture
def fit(module):
    return module("model").fit


@pytest.fixture
def figures(module):
    def make(name, write_ms, overhead_ms):
        times = [size * write_ms + overhead_ms for size in SIZES]
        return module("report").Measured(name, SIZES, times, [ms / 2 for ms in times], [ms + 1 for ms in times])

    return make


def test_the_constants_are_found_again(fit):
    found = fit(SIZES, [size * 0.01 + 0.5 for size in SIZES])
    assert found.write_ms == pytest.approx(0.01) and found.overhead_ms == pytest.approx(0.5)
    assert found.worst == pytest.approx(0, abs=1e-9)


def test_a_large_transaction_weighs_no_more_than_a_small_one(fit):
    times = [size * 0.01 + 0.5 for size in SIZES]
    found = fit(SIZES, [*times[:-1], times[-1] * 1.1])
    assert found.overhead_ms == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("which", ["write_ms", "overhead_ms"])
def test_changing_a_fitted_constant_increases_the_squared_error(fit, which):
    random = Random(which)
    times = [(size * 0.02 + 2) * random.uniform(0.8, 1.25) for size in SIZES]
    found = fit(SIZES, times)
    assert found.residuals == pytest.approx([found.ms(n) / ms - 1 for n, ms in zip(SIZES, times, strict=True)])
    for factor in (0.99, 1.01):
        other = found._replace(**{which: getattr(found, which) * factor})
        assert sum((other.ms(n) / ms - 1) ** 2 for n, ms in zip(SIZES, times, strict=True)) > sum(
            residual**2 for residual in found.residuals
        )


def test_no_constant_is_negative(fit):
    shrinking = fit([1, 10, 100], [3.0, 2.0, 1.0])
    assert shrinking.write_ms == 0 and shrinking.overhead_ms > 0 and shrinking.records_for(0.9) == math.inf
    growing = fit([1, 10, 100], [1.0, 20.0, 400.0])
    assert growing.overhead_ms == 0 and growing.write_ms > 0 and growing.records_for(0.9) == 0


@pytest.mark.parametrize(("sizes", "times"), [([5, 5], [1.0, 2.0]), ([1, 2], [1.0, 0.0]), ([1], [1.0])])
def test_a_fit_without_two_sizes_and_positive_times_is_refused(fit, sizes, times):
    with pytest.raises(ValueError, match="two sizes at least"):
        fit(sizes, times)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_share_of_the_rate_costs_the_overhead_by_what_is_left(fit, share):
    found = fit(SIZES, [size * 0.01 + 0.5 for size in SIZES])
    records = found.records_for(share)
    assert found.rate_mb_s(records, 1024) == pytest.approx(share * 1024 / 1000 / 0.01)
    assert found.ms(records) == pytest.approx(0.5 / (1 - share))


@pytest.mark.parametrize("count", [1, 2])
def test_the_plot_is_sound_xml_that_loads_nothing_and_draws_every_figure(module, figures, count):
    brokers = [figures("<ottla>", 0.01, 0.5), figures("kafka", 0.02, 2.5)][:count]
    text = module("plot").plot(brokers, 1024)
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    points = [each for each in root.iter(f"{SVG}circle") if each.get("r") == "3"]
    assert len(points) == 3 * count * len(SIZES)
    assert len(list(root.iter(f"{SVG}polyline"))) == 3 * count
    assert "<ottla>" in [each.text for each in root.iter(f"{SVG}text")]
    assert not any(name in text for name in ("href", "url(", "@import", "<script"))


def test_everything_drawn_is_inside_the_plot(module, figures):
    root = ElementTree.fromstring(module("plot").plot([figures("ottla", 0.01, 0.5), figures("kafka", 0.3, 90)], 1024))
    _, _, width, height = map(float, root.get("viewBox").split())
    places = [(float(each.get("cx")), float(each.get("cy"))) for each in root.iter(f"{SVG}circle")]
    for line in root.iter(f"{SVG}polyline"):
        places += [tuple(map(float, place.split(","))) for place in line.get("points").split()]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)


def test_the_plot_marks_the_size_that_reaches_90_percent_of_the_rate(module, figures):
    root = ElementTree.fromstring(module("plot").plot([figures("ottla", 0.01, 0.5), figures("kafka", 1, 0.001)], 1024))
    told = [each.text for each in root.iter(f"{SVG}text") if each.text and "90%" in each.text]
    assert [text.strip() for text in told] == ["90% from 450 on"] * 2


def test_the_table_has_each_size_and_the_constants_of_each_broker(module, figures):
    machine = {"python": "CPython 3.11.7, PGO", "cores": 2, "load_1_min": 0.5, "load_1_min_after": 1.0}
    document = {"machine": machine, "record_bytes": 1000, "rounds": 3, "retries": {"ottla": 0}}
    text = module("report").as_text([figures("ottla", 0.01, 0.5)], document)
    rows = {cells[0]: cells[1:] for line in text.splitlines() if (cells := line.split())}
    assert rows["10,000"] == ["99.50", "100.50", "50.250", "101.50"]
    assert "ottla, wall: T_write 10.00 us, O_tx 0.500 ms; residuals 0.0%" in text
    assert "at most 100.0 MB/s; 50% from 50 records, 90% from 450 records, 99% from 4,950 records" in text
