"""The audit of a log directory: `spark-submit audit.py DIR`, or `main(argv)` on a local session. free

Data goes to stdout, everything else to stderr. Exit codes: 0 clean, 1 findings (a transaction that hangs, damage), 2
usage, 3 the directory could not be read.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a script, the folder of this file comes first on the path and would shadow the standard library.
    _here = Path(__file__).resolve()
    sys.path[:] = [str(_here.parents[2])] + [
        entry for entry in sys.path if Path(entry or ".").resolve() != _here.parent
    ]

import argparse
import importlib.util
import os
import shutil
import time

CLEAN, FINDINGS, USAGE, UNREADABLE = 0, 1, 2, 3


def main(argv: list[str] | None = None) -> int:
    """Audit as `argv` (without the program's name) says; returns the exit code."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    if missing := _cannot_run():
        return _failed(missing)
    return _audit(arguments)


def _audit(arguments: argparse.Namespace) -> int:
    from ottla.spark_jobs.audit_scan import AuditFailed, audit
    from ottla.spark_jobs.listing import UnreadableDirectory, list_partitions, select_topics, topic_patterns
    from ottla.spark_jobs.report import json_report, text_report
    from ottla.spark_jobs.session import NoSpark, session

    try:
        patterns = topic_patterns(arguments.topics)
        if not select_topics(list_partitions(arguments.directory), patterns) and patterns:
            return _failed(f"{arguments.directory}: no topic matches {arguments.topics}", USAGE)
        with session("ottla audit") as spark:
            found = audit(spark, arguments.directory, patterns, time.time_ns() // 1_000_000)
    except (UnreadableDirectory, AuditFailed, NoSpark) as error:
        return _failed(str(error))
    if arguments.format == "json":
        sys.stdout.write(json_report(found))
    else:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        sys.stdout.write(text_report(found, every_partition=arguments.all or bool(arguments.topics), colour=colour))
    sys.stdout.flush()
    return FINDINGS if found.has_findings else CLEAN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla audit",
        description="What is committed, aborted and open in the log directory of a broker, running or not.",
        epilog="Exit codes: 0 clean, 1 findings (a transaction that hangs, damage), 2 usage, 3 unreadable.",
    )
    parser.add_argument("directory", metavar="DIR", help="a log directory of Ottla or Apache Kafka")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--topics", default="", metavar="GLOBS", help="comma-separated, such as ledger,audit-*")
    parser.add_argument("--all", action="store_true", help="show the partitions of internal topics too")
    return parser


def _cannot_run() -> str:
    """Why Spark cannot be started here, or an empty string."""
    if importlib.util.find_spec("pyspark") is None:
        return "the audit needs PySpark: pip install 'ottla[spark]'"
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        return "the audit runs on Spark, which needs Java 17: no java on the path and no JAVA_HOME"
    from ottla.spark_jobs.needs import WorkerLacks, check_worker

    try:
        check_worker()
    except WorkerLacks as error:
        return str(error)
    return ""


def _failed(reason: str, code: int = UNREADABLE) -> int:
    sys.stderr.write(f"ottla audit: {reason}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
