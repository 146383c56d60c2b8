"""Random requests, drawn from a seed, of clients without a login: none gets access, and nothing is left behind."""

import pytest

from tests.fuzz_surface.fuzz import Fuzz

VISITS = 150
PATIENT_MS = 1000.0
"""How long another may wait is told by hours of it on a quiet machine, and not here."""


@pytest.mark.slow
def test_random_requests_without_a_login_have_no_findings(tmp_path, pytestconfig):
    pytest.importorskip("joserfc")
    seed = pytestconfig.getoption("hypothesis_seed", None) or 1
    done = Fuzz(tmp_path, int(seed), visits=VISITS, clients=4, most_wait_ms=PATIENT_MS).run()
    assert done.findings == [], f"again by `python -m tests.fuzz_surface --seed {seed} --visits {VISITS}`"
    assert done.figures["visits"] >= VISITS
