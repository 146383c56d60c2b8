"""View `findings`: what `ottla audit` finds in the directories, by the same checks. shell"""

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.audit.selection import BadArgument, selection_of
from ottla.scan import schemas
from ottla.spark_jobs.options import OptionError
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.query_tasks import Task

if TYPE_CHECKING:
    from ottla.audit.request import Request

_log = logging.getLogger("ottla.spark_jobs")


class FindingsReader(ViewReader):
    """Reader with a single task, which audits the directories with threads on all cores of its machine.

    A finding may need every partition and the coordinators' log, and tasks of a query cannot exchange what they read.
    Filters save no reading: a finding on one partition may come from another one.
    """

    view = schemas.FINDINGS

    def plan(self) -> list[Task]:
        self._request()
        return [Task()]

    def rows_or_batches(self, task: Task) -> Iterator[Any]:
        from ottla.audit.pipeline import audit_listing
        from ottla.audit.request import list_selection
        from ottla.audit.runner import ThreadRunner

        request = self._request()
        listed = list_selection(request, _log.warning)
        found = audit_listing(ThreadRunner(os.cpu_count() or 1), request, listed).findings
        return self.to_arrow(dict(zip(schemas.VIEWS[schemas.FINDINGS], one, strict=True)) for one in found)

    def _request(self) -> "Request":
        """Return the request for an audit now. Raises OptionError."""
        from ottla.audit.request import request_of

        try:
            selection = selection_of(self.options.paths, self.options.audited)
            config = replace(selection, command_config=self.options.command_config)
            return request_of(config, time.time_ns() // 1_000_000)
        except BadArgument as error:
            raise OptionError(f"the view {self.view} takes the options of ottla audit; {error}") from None
