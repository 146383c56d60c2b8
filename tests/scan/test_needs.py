"""Preparations at the start of every Spark task."""

import gc
import importlib.util
import sys
from types import ModuleType

import pytest

from ottla.scan import needs


@pytest.fixture
def unfrozen():
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_objects_of_a_spark_worker_are_excluded_from_garbage_collection(monkeypatch, unfrozen):
    monkeypatch.setitem(sys.modules, "pyspark.worker", ModuleType("pyspark.worker"))
    needs.check_worker()
    assert gc.get_freeze_count() > 1_000


def test_another_process_is_left_as_it_is(monkeypatch, unfrozen):
    monkeypatch.delitem(sys.modules, "pyspark.worker", raising=False)
    needs.check_worker()
    assert gc.get_freeze_count() == 0


def test_library_that_is_missing_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setattr(needs, "lacking", lambda: ("numba", "pyarrow"))
    with pytest.raises(needs.WorkerLacks, match=r"lacks numba, pyarrow: pip install 'ottla\[spark\]' there"):
        needs.check_worker()


def test_a_python_that_spark_cannot_plan_in_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        needs.WorkerLacks, match=r"which lacks pyarrow: import ottla\.spark_jobs in the script"
    ) as raised:
        needs.check_planner()
    assert sys.executable in str(raised.value)


def test_kernels_work_where_no_cache_can_be_written(monkeypatch):
    pytest.importorskip("numba", reason="the spark extra is not installed")
    from numba.core.caching import CacheImpl

    from ottla.scan.compiled.kernels import kernel

    monkeypatch.delenv("NUMBA_CACHE_LOCATOR_CLASSES", raising=False)
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert kernel(_successor).of_kind("compiled")(1) == 2


def _successor(number):
    return number + 1
