"""A browser without a window, for tests of what is drawn and of what pages may do."""

import shutil
import subprocess

import pytest

from tests.patience import PATIENCE_S

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser():
    """Call it with flags and an address; `--dump-dom` prints the page as its scripts have made it."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is on the path")

    def run(*arguments):
        command = [found, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    return run
