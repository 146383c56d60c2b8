"""Pages of the docs, pasted from top to end, with the data of `ottla demo --keep`."""

import contextlib
import subprocess
import sys

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from tests.pages import PAGES
from tests.pasted import Pasting
from tests.timeout import EVENT_TIMEOUT_S

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory):
    kept = tmp_path_factory.mktemp("demo") / "ottla-data"
    command = [sys.executable, "-m", "ottla", "demo", "--no-audit", "--keep", str(kept)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return kept


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_pasted(page, tmp_path, demo_data, request):
    with contextlib.closing(Pasting(tmp_path, demo_data if page.has_data else None)) as pasting:
        if any("spark" in text for _, language, text in page.pieces() if language == "python"):
            pasting.names["spark"] = request.getfixturevalue("spark")
        pasting.paste(page)


@pytest.mark.parametrize(
    "reason",
    [pytest.param(each[-1], id=f"{page.name}:{each[0]} {each[1]}") for page in PAGES for each in page.list_left_out()],
)
def test_a_command_that_is_not_pasted_has_a_reason(reason):
    pytest.skip(reason)
