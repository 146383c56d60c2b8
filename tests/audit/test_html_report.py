"""The HTML report: a self-contained file with valid markup that a real browser draws."""

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.spark_jobs import audit

VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """A parsed page: open tags, ids, links, words, and external resources."""

    def __init__(self, content):
        super().__init__()
        self.open, self.ids, self.links, self.loaded, self.tags = [], [], [], [], []
        self.words = ""
        self.feed(content)
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if "href" in attributes else []
        self.loaded += [value for name, value in attrs if name == "src" or (name == "href" and tag == "link")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data

    def shapes(self, kind):
        return [attributes for tag, attributes in self.tags if tag == "rect" and attributes.get("class") == kind]


@pytest.fixture
def report(tmp_path, capsys):
    def make(directory, *arguments):
        path = tmp_path / "report.html"
        code = audit.main([str(directory), "--report", str(path), *arguments])
        assert code in (0, 1), capsys.readouterr().err
        return path

    return make


def test_every_link_leads_somewhere_and_nothing_is_loaded(report, reference):
    page = Page(report(reference("unclean")).read_text())
    assert page.loaded == []
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert all(link.startswith("#") for link in page.links)
    assert "url(" not in page.words and "http" not in page.words.replace("http://www.w3.org", "")


def test_verdict_findings_and_spans(report, reference):
    content = report(reference("unclean")).read_text()
    page = Page(content)
    assert "Findings: 2 hanging transactions." in page.words
    assert "last stable offset 898" in page.words
    assert content.index("Findings: 2 hanging") < content.index("ottla txn why") < content.index("Timelines")
    # Each over offsets and over time.
    assert sum(float(one["height"]) == 8 and float(one.get("y", 0)) > 0 for one in page.shapes("open")) == 4


def test_many_findings_of_a_check_are_folded_and_all_there(report, write_log):
    log = write_log()
    for number in range(20):
        log.data(1, producer_id=7, base_sequence=10 * number, transactional=False)
    content = report(write_log.root).read_text()
    page = Page(content)
    assert "14 more of sequence" in page.words
    assert [f"f{at}" for at in range(19)] == [one for one in page.ids if one.startswith("f")]
    assert content.index('id="f4"') < content.index("<summary>14 more") < content.index('id="f5"')


def test_commands_are_marked_up_as_code(report, reference):
    content = report(reference("unclean")).read_text()
    assert content.count("<code>ottla txn why ledger") >= 2


def test_a_clean_directory_is_reported_as_clean(report, write_log):
    log = write_log()
    log.data(2, producer_id=7)
    log.marker(7, commit=True)
    page = Page(report(write_log.root).read_text())
    assert "Clean: every transaction is decided" in page.words
    assert "Findings" not in page.words


def test_an_empty_directory_gives_a_report_too(report, write_log):
    assert "0 partitions" in Page(report(write_log.root).read_text()).words


def test_names_are_text_and_never_markup(write_log):
    from ottla.audit.report.timeline import Span, over_offsets

    span = Span("open", "<script>alert(1)</script>", 0, 3, -1, -1, 1)

    class One:
        name, log_end, last_stable_offset = "ledger-0", 3, 0

    drawn = over_offsets(One, [span], [(1, 'f0"', '"><script>')])
    assert "<script>" not in drawn


def test_the_axis_begins_with_the_log_where_plain_records_are(report, write_log):
    log = write_log()
    log.data(5)
    log.data(3, producer_id=7)
    log.marker(7, True)
    page = Page(report(write_log.root).read_text())
    (bar,) = page.shapes("committed")[:1]
    assert float(bar["x"].rstrip("%")) > 30
    assert "5 records outside of transactions are not drawn" in page.words


def test_a_report_is_not_written_into_a_folder_that_is_not_there(write_log, tmp_path, capsys):
    log = write_log()
    log.data(1)
    report = tmp_path / "reprots" / "report.html"
    assert audit.main([str(write_log.root), "--report", str(report)]) == 2
    told = f"ottla audit: --report {report}: there is no folder {report.parent}\n"
    assert (capsys.readouterr().err, report.parent.exists()) == (told, False)


@pytest.mark.slow
def test_internal_topics_are_summarized_in_one_line_without_all(report, reference):
    page = Page(report(reference("clean")).read_text())
    table = page.words.rpartition("Partitions")[2]
    assert "__transaction_state" not in table and "ledger-tv2" in table
    assert "Internal topics were audited too (8 partitions); --all shows them" in table
    table = Page(report(reference("clean"), "--all").read_text()).words.rpartition("Partitions")[2]
    assert "__transaction_state" in table and "--all" not in table


def test_words_of_charts_have_their_size_in_any_width(report, reference):
    """A chart is never narrower than it is drawn: a narrow page scrolls it in its own box."""
    content = report(reference("unclean")).read_text()
    charts = content.partition('<div class="charts">')[2]
    drawn = {float(width) for width in re.findall(r'viewBox="0 0 (\d+) \d+" role', charts)}
    least = float(re.search(r"\.charts svg { min-width: (\d+)px", content)[1])
    size = float(re.search(r"svg text {[^}]*font: (\d+)px", content)[1])
    assert drawn and all(size * least / width >= 11 for width in drawn)
    assert ".charts > div { overflow-x: auto; }" in content


def test_an_unwritable_report_path_is_reported_in_one_line(write_log, capsys):
    log = write_log()
    log.data(1)
    report = log.path / "report.html"
    assert audit.main([str(write_log.root), "--report", str(report)]) == 2
    assert capsys.readouterr().err == f"ottla audit: --report {report}: cannot be written: Not a directory\n"


@pytest.mark.parametrize("size", ["1160,1600", "500,900"], ids=["desk", "narrow"])
def test_a_browser_draws_it(report, reference, browser, tmp_path, size):
    path = report(reference("unclean"))
    probe = tmp_path / "probe.html"
    measure = (
        "<script>addEventListener('load', () => {"
        " const width = (name) => Math.round(document.querySelector(name).getBoundingClientRect().width);"
        " const fits = document.body.scrollWidth <= innerWidth;"
        " document.title = [width('svg rect.open'), width('.by-time svg'), fits].join(' '); });</script>"
    )
    probe.write_text(path.read_text().replace("</body>", f"{measure}</body>"))
    drawn = browser(f"--window-size={size}", "--dump-dom", probe.as_uri())
    open_width, hidden_width, fits = drawn.stdout.partition("<title>")[2].partition("</title>")[0].split()
    assert int(open_width) > 0, "the open transaction is drawn"
    assert hidden_width == "0", "what is over time is hidden at first"
    assert fits == "true", "nothing sticks out to the right"
    shot = tmp_path / "report.png"
    browser(f"--window-size={size}", f"--screenshot={shot}", path.as_uri())
    assert shot.stat().st_size > 50_000
