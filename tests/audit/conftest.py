"""An audit in the test's own process takes compiled kernels, as one of a large log; one in another process decides."""

import pytest

from tests import kernel_kinds


@pytest.fixture(scope="module", autouse=True)
def kind_of_kernels():
    pytest.importorskip("numba", reason="the spark extra is not installed")
    with kernel_kinds.only(kernel_kinds.COMPILED):
        yield
