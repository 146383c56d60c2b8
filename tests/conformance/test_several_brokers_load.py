"""Each client library, while leaders and coordinators move, and brokers stop, pause and lose their links."""

import pytest
from clients import lacks
from several_brokers_load import GROUPS, Load

CHANGES, PER_SECOND = 40, 4
MARKS = {"java": [pytest.mark.maven]}

pytestmark = [pytest.mark.conformance, pytest.mark.slow]


@pytest.mark.parametrize("library", [pytest.param(each, marks=MARKS.get(each, [])) for each in GROUPS])
def test_no_record_is_lost_or_copied_twice_while_brokers_change(library, tmp_path):
    if reason := lacks(library):
        pytest.skip(reason)
    with Load(library, tmp_path / library) as load:
        load.run(CHANGES, PER_SECOND)
        assert load.check() == [], "\n".join(load.describe())
        assert load.changes.met[0] > 0, "no client met a change"
