"""Tests of reading a log run with kernels of both kinds."""

import pytest

from tests import kernel_kinds

OF_BOTH_KINDS = (
    "against_scanner",
    "batch_fates",
    "chunks",
    "columns",
    "fates",
    "legacy",
    "walk",
    "walk_files",
    "walk_rules",
)


def pytest_generate_tests(metafunc):
    name = metafunc.module.__name__.rpartition(".test_")[2]
    if name in OF_BOTH_KINDS:
        kinds = [kernel_kinds.COMPILED, kernel_kinds.PLAIN]
        metafunc.parametrize("kind_of_kernels", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def kind_of_kernels(request):
    """The kind. Plain kernels are slow, and `test_kernels.py` compares both: tests give plain ones less data."""
    pytest.importorskip("numba", reason="the spark extra is not installed")
    kind = getattr(request, "param", kernel_kinds.COMPILED)
    with kernel_kinds.only(kind):
        yield kind
