"""The audit of log directories: `spark-submit audit.py DIR`, or `main(argv)` in this process. free

On Spark or in threads of this process, as `--run-on` says. PySpark is loaded only for the former.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from ottla.spark_jobs.start import mend_path, need_click

    mend_path()
    need_click()

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.audit import job
from ottla.audit.program import run_command
from ottla.spark_jobs.session import NoSpark, cannot_run, is_on_spark, session

if TYPE_CHECKING:
    from ottla.audit.command_line import Arguments
    from ottla.audit.runner import Runner


def main(argv: list[str] | None = None) -> int:
    """Audit as `argv` (without the program's name) says; return the exit code."""
    from ottla.spark_jobs import command_lines

    return run_command(command_lines.audit, argv)


def run(arguments: "Arguments") -> int:
    """Audit; return the exit code."""
    on_spark = is_on_spark(arguments.run_on)
    if missing := cannot_run("the audit", on_spark=on_spark):
        return job.report_failure(missing)
    return job.audit(arguments, _spark if on_spark else job.threads)


@contextmanager
def _spark() -> "Iterator[Runner]":
    from ottla.audit.runner import AuditFailed
    from ottla.spark_jobs.spark_runner import SparkRunner

    try:
        with session("ottla audit") as spark:
            yield SparkRunner(spark)
    except NoSpark as error:
        raise AuditFailed(str(error)) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
