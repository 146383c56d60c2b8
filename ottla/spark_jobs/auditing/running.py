"""Tasks of an audit, run to the last, and the reason that is told when one could not. shell"""

from collections.abc import Sequence

from ottla.spark_jobs.auditing.tasks import Result, Work
from ottla.spark_jobs.runner import Function, Runner


class AuditFailed(Exception):
    """The directory could not be read through; the text is one line."""


class FilesVanished(AuditFailed):
    """A file that was listed is gone: the broker deleted or compacted meanwhile. Listed anew, the audit may succeed."""


def run(runner: Runner, function: Function, works: Sequence[Work], label: str) -> list[Result]:
    """The results in order of partition and range. Raises AuditFailed with the first reason that there is."""
    results = sorted(runner.run(function, works, label), key=lambda one: (one.partition, one.ordinal))
    raise_first_error(results)
    return results


def raise_first_error(results: Sequence[Result]) -> None:
    """Raises FilesVanished if that is all that went wrong, else AuditFailed with the first other reason."""
    for result in sorted((one for one in results if one.error), key=lambda one: one.has_vanished):
        raise (FilesVanished if result.has_vanished else AuditFailed)(result.error)
