"""Errors without the traceback of Spark's Python process, if the text of the error names the remedy. shell"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def without_traceback() -> Iterator[None]:
    """Have Spark report an explained error of the block without its traceback.

    Spark reads the variable where it reports the error of a Python process, and ends that process next (`worker_run`,
    `handle_worker_exception`). So other errors of the application keep their tracebacks.
    """
    try:
        yield
    except Exception as error:
        if _names_its_remedy(error) and _is_process_of_spark():
            os.environ[_HIDE] = "1"
        raise


def _names_its_remedy(error: Exception) -> bool:
    """Return whether the text has the cause and the remedy, so that the place in the source does not help."""
    from ottla.audit.selection import BadArgument
    from ottla.scan.damage_log import DamagedSegment
    from ottla.scan.listing import UnreadableDirectory
    from ottla.scan.needs import WorkerLacks
    from ottla.scan.schemas import SchemaError
    from ottla.spark_jobs.options import DataLost, OptionError
    from ottla.wire import Unanswered

    explained = BadArgument, DamagedSegment, DataLost, OptionError, SchemaError, Unanswered, UnreadableDirectory
    return isinstance(error, (*explained, WorkerLacks))


def _is_process_of_spark() -> bool:
    """Return whether Spark started this process, which is a module of PySpark then."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")
