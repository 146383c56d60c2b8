"""The audit's HTML report in a real browser, at the widths of a phone and of a large screen."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.report.page import page
from ottla.audit.report.timeline import Span, over_offsets, over_time
from ottla.spark_jobs import audit

# Labels that are drawn: [text, its distances inwards from the left and right edge of its picture].
LABELS = """[...document.querySelectorAll('svg text')].map(label => {
  const box = label.getBoundingClientRect(), picture = label.ownerSVGElement.getBoundingClientRect();
  return [label.textContent, box.left - picture.left, picture.right - box.right, box.width];
}).filter(([, , , width]) => width > 0)"""
# Pairs of labels of one picture that lie on each other.
PAIRS = """[...document.querySelectorAll('svg')].flatMap(picture => {
  const drawn = [...picture.querySelectorAll('text')].map(label => [label.textContent, label.getBoundingClientRect()]);
  const meet = (one, other) => one.width > 0 && other.width > 0 && one.left < other.right && other.left < one.right
    && one.top < other.bottom && other.top < one.bottom;
  return drawn.flatMap(([text, box], at) =>
    drawn.slice(at + 1).filter(([, other]) => meet(box, other)).map(([other]) => [text, other]));
})"""
SCROLLED = "(scrollTo(10000, 0), scrollX)"
WIDTHS = (1200, 1100, 761, 400, 360)


def assert_fits(tab):
    for width in WIDTHS:
        tab.resize(width, 900, is_phone=width <= 400)
        labels = tab.value(LABELS)
        assert labels, width
        outside = [label for label in labels if min(label[1], label[2]) < -1]
        assert (width, outside, tab.value(PAIRS), tab.value(SCROLLED)) == (width, [], [], 0)
        assert tab.value("innerWidth") == width, "a phone would zoom out to show what sticks out"


@pytest.fixture
def open_report(tab, tmp_path, capsys):
    """Open the report on a log directory, with all that is folded in it unfolded."""

    def go(directory):
        path = tmp_path / "report.html"
        assert audit.main([str(directory), "--all", "--report", str(path)]) in (0, 1), capsys.readouterr().err
        tab.open(path.as_uri())
        tab.value("document.querySelectorAll('details').forEach(folded => { folded.open = true; })")
        return tab

    return go


@pytest.mark.parametrize("axis", ["offset", "time"])
@pytest.mark.parametrize("archive", ["clean", "unclean"])
def test_labels_stay_inside_their_picture_and_the_page_does_not_scroll_sideways(open_report, reference, archive, axis):
    tab = open_report(reference(archive))
    tab.value(f"document.querySelector('#{axis}').click()")
    assert_fits(tab)


class Partition:
    name = "ledger-0"

    def __init__(self, last_stable_offset, log_end):
        self.last_stable_offset, self.log_end = last_stable_offset, log_end


@pytest.mark.parametrize("share", [0, 10, 25, 40, 50, 60, 75, 90, 100])
@pytest.mark.parametrize("start, length", [(0, 3), (9_876_543_210, 7_000), (123_456_789_012_345, 90_000_000)])
def test_labels_fit_wherever_readers_wait(tab, tmp_path, start, length, share):
    end = start + length
    waiting = start + (length - 1) * share // 100
    spans = [
        Span("committed", "orders", start, waiting, 1_700_000_000_000, 1_700_000_000_000 + share, 1),
        Span("open", "orders", waiting, end, 1_700_000_000_000 + share, 1_700_000_009_000, 1),
    ]
    one = Partition(waiting, end)
    drawn = [over_offsets(one, spans, [(waiting, "f0", "why")]), over_time(one, spans, 1_700_000_009_000)]
    path = tmp_path / "pictures.html"
    path.write_text(page("pictures", drawn))
    tab.open(path.as_uri())
    assert_fits(tab)


def test_long_names_do_not_make_the_page_scroll(open_report, write_log):
    log = write_log("W" * 240)
    for number in range(20):
        log.data(1, producer_id=7, base_sequence=10 * number, transactional=False)
    log.data(1, producer_id=8)
    log.marker(8, commit=False)
    log.data(1, producer_id=9)
    assert_fits(open_report(write_log.root))
