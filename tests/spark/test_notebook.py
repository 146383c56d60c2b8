"""The notebook in `examples` runs from the first cell to the last, without Jupyter, and has no stored output."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

NOTEBOOK = Path(__file__).parents[2] / "examples" / "transactions.ipynb"
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def shuffle_partitions(spark):
    """Restore the setting that the notebook changes in the shared session."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


def code_cells():
    return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_no_output_is_stored():
    assert [cell["outputs"] or cell["execution_count"] for cell in code_cells()] == [None] * len(code_cells())


def test_every_cell_runs(spark, shuffle_partitions, capsys):
    found = {"__name__": "__main__"}
    values = {}
    try:
        for cell in code_cells():
            exec(compile("".join(cell["source"]), f"{NOTEBOOK.name} {cell['id']}", "exec"), found)
            values |= _results(found, values)
    finally:
        if "at_end" in found:
            found["at_end"].close()
    committed = ["order-1", "order-2", "order-3"]
    assert values["fates"] == [("aborted", 1), ("committed", 3), ("open", 1)]
    assert [row.order for row in values["orders"]] == committed
    assert [(row.severity, row.partition, row.transactionalId) for row in values["overdue"]] == [
        ("error", 1, "order-processor-02")
    ]
    assert found["before_commit"] == committed
    assert found["after_commit"] == [*committed, "order-5"]
    assert found["exported"] == (4 if find_spec("deltalake") else None)
    assert not found["scratch"].exists() and not Path(found["directory"]).exists()
    assert f"BatchScan ottla: records of financial-ledger in {found['directory']}[" in capsys.readouterr().out


def _results(found, known):
    """Return the rows of the DataFrames that a cell has created; the last cell stops their broker."""
    return {
        name: found[name].collect() for name in ("fates", "orders", "overdue") if name in found.keys() - known.keys()
    }
