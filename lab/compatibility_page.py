"""Writes docs/compatibility.md from results of tests: `python -m lab.compatibility_page FILE.xml ...`. shell

A test that belongs to a cell records the property `cell`, `TARGET|CLIENT|FEATURE`, and `version`, that of the client,
if it is known. A cell that no test has played is `not run here`.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from lab.usage import command_line

NOT_OFFERED = "not offered: "
TARGETS = {"ottla": "Ottla", "apache": "Apache Kafka 4.3.1"}
APPLICATION = "application"
"""The feature of a test of a whole application; it has a table of its own."""
_HEAD = """# Compatibility

`make conformance` writes this page: it plays the same steps with every client against Ottla and against Apache Kafka
4.3.1. Each client library runs in a process of its own, unchanged. Steps are in `tests/conformance/scenario.py`.
[The libraries' own tests](client-suites.md) ran on both, too.

- **passed**: all steps of this feature that the client offers. **failed**: at least one did not pass, see below the
  table.
- **-**: the client does not offer it. [The reasons](#what-clients-do-not-offer) are at the end.
- **not run here**: the tools that this client needs were missing on the machine of the run.
"""


class Result(NamedTuple):
    """The outcome of one test: `passed`, `failed`, `not offered` or `not run`, and the reason if it did not pass."""

    target: str
    client: str
    feature: str
    test: str
    outcome: str
    reason: str
    version: str


def read_results(files: Iterable[Path]) -> list[Result]:
    """Return the results of tests with a cell in files of JUnit's format."""
    return [result for file in files for case in ElementTree.parse(file).iter("testcase") for result in _results(case)]


def _results(case: ElementTree.Element) -> Iterator[Result]:
    properties = {each.get("name"): each.get("value", "") for each in case.iter("property")}
    if "cell" in properties:
        target, client, feature = properties["cell"].split("|")
        version = properties.get("version", "")
        yield Result(target, client, feature, case.get("name", ""), *_outcome(case), version)


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            return "failed", _shorten(found.get("message", ""))
    skipped = case.find("skipped")
    if skipped is None:
        return "passed", ""
    reason = skipped.get("message", "")
    if reason.startswith(NOT_OFFERED):
        return "not offered", _shorten(reason.removeprefix(NOT_OFFERED))
    return "not run", _shorten(reason)


def _shorten(text: str) -> str:
    line = " ".join(text.partition("\n")[0].split())
    return line.replace("|", "\\|") if len(line) < 160 else line[:157].replace("|", "\\|") + "..."


def cell(results: list[Result]) -> str:
    """Return the text of a cell from the results of its tests."""
    outcomes = {result.outcome for result in results}
    if "failed" in outcomes:
        return "**failed**"
    if "passed" in outcomes:
        return "passed"
    return "-" if "not offered" in outcomes else "not run here"


def render(results: list[Result]) -> str:
    """Return the page."""
    libraries = [result for result in results if result.feature != APPLICATION]
    parts = [_HEAD]
    for target, title in TARGETS.items():
        parts += [f"\n## Client libraries on {title}\n", *_library_table(libraries, target)]
        parts += _failures([result for result in libraries if result.target == target])
    applications = [result for result in results if result.feature == APPLICATION]
    if applications:
        parts += ["\n## Applications and tools\n", *_application_table(applications), *_failures(applications)]
    lacking = (f"- {each.client}: {each.reason}" for each in results if each.outcome == "not offered")
    parts += ["\n## What clients do not offer\n", *dict.fromkeys(lacking)]
    return "\n".join(parts) + "\n"


def _library_table(results: list[Result], target: str) -> Iterator[str]:
    features = list(dict.fromkeys(result.feature for result in results))
    yield f"| client | {' | '.join(features)} |"
    yield "|---" * (len(features) + 1) + "|"
    for client in dict.fromkeys(result.client for result in results):
        of_client = [result for result in results if result.client == client]
        version = next((result.version for result in of_client if result.version), "")
        cells = [
            cell([result for result in of_client if (result.target, result.feature) == (target, feature)])
            for feature in features
        ]
        yield f"| {client.removesuffix(f'-{version}')} {version} | {' | '.join(cells)} |".replace("  |", " |")


def _application_table(results: list[Result]) -> Iterator[str]:
    yield f"| application | {' | '.join(TARGETS.values())} |"
    yield "|---" * (len(TARGETS) + 1) + "|"
    for client in dict.fromkeys(result.client for result in results):
        of_client = [result for result in results if result.client == client]
        cells = [cell([result for result in of_client if result.target == target]) for target in TARGETS]
        yield f"| {client} | {' | '.join(cells)} |"


def _failures(results: list[Result]) -> list[str]:
    """Return a line for each test that failed."""
    lines = [f"- {each.client}, `{each.test}`: {each.reason}" for each in results if each.outcome == "failed"]
    return ["", *lines] if lines else []


def main() -> None:
    """Print the page."""
    parser = command_line(__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.xml", help="results of tests, written by pytest")
    results = read_results(parser.parse_args().files)
    if not results:
        sys.exit("no test in these files belongs to a cell")
    sys.stdout.write(render(results))


if __name__ == "__main__":
    main()
