"""docs/compatibility.md shows what the tests of its cells have shown, and no cell is passed that no test has passed."""

import pytest

from lab.compatibility_page import read_results, render

SKIPPED = '<skipped message="{}"/>'
FAILED = '<failure message="AssertionError: assert [1] == [2]&#10;more"/>'


def case(target, client, feature, inside="", version=""):
    properties = f'<property name="cell" value="{target}|{client}|{feature}"/>'
    properties += f'<property name="version" value="{version}"/>' if version else ""
    return f'<testcase name="test_{feature}"><properties>{properties}</properties>{inside}</testcase>'


@pytest.fixture
def page(tmp_path):
    def write(*cases):
        file = tmp_path / "results.xml"
        file.write_text(f"<testsuites><testsuite>{''.join(cases)}<testcase name='other'/></testsuite></testsuites>")
        return render(read_results([file])).splitlines()

    return write


def test_a_cell_is_passed_if_no_test_failed_and_one_passed(page):
    lines = page(
        case("ottla", "java", "topics", version="4.3.1"),
        case("ottla", "java", "records", FAILED),
        case("ottla", "java", "records"),
        case("ottla", "java", "groups", SKIPPED.format("not offered: it has none")),
        case("ottla", "java", "TLS", SKIPPED.format("not offered: no PEM")),
        case("ottla", "java", "TLS"),
        case("ottla", "java-4.4.0", "topics", version="4.4.0"),
        case("ottla", "kcat", "topics", SKIPPED.format("no kcat on the path")),
        case("apache", "java", "topics"),
    )
    ottla, apache = (lines.index(f"## Client libraries on {name}") for name in ("Ottla", "Apache Kafka 4.3.1"))
    assert lines[ottla + 2 : ottla + 7] == [
        "| client | topics | records | groups | TLS |",
        "|---|---|---|---|---|",
        "| java 4.3.1 | passed | **failed** | - | passed |",
        "| java 4.4.0 | passed | not run here | not run here | not run here |",
        "| kcat | not run here | not run here | not run here | not run here |",
    ]
    assert lines[apache + 4] == "| java 4.3.1 | passed | not run here | not run here | not run here |"
    assert "- java, `test_records`: AssertionError: assert [1] == [2]" in lines
    assert "- java: it has none" in lines


def test_applications_have_a_table_of_their_own(page):
    lines = page(case("ottla", "Kafka Connect 4.3.1", "application"), case("apache", "kcat", "application", FAILED))
    assert "| Kafka Connect 4.3.1 | passed | not run here |" in lines
    assert "| kcat | not run here | **failed** |" in lines
