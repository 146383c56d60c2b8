"""The proxy as a process of its own: until a signal ends it, and what it leaves then. shell"""

import asyncio
import json
import logging
import signal
from pathlib import Path
from typing import Any

from ottla.testkit.history.events import events
from ottla.testkit.history.lines import checker_lines
from ottla.testkit.proxying.proxy import Proxy

log = logging.getLogger(__name__)


async def serve(proxy: Proxy, ready: Any) -> None:
    """Run until SIGINT or SIGTERM; `ready` is called when clients may come. OSError if they cannot."""
    await proxy.start()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ready()
    await stop.wait()
    await proxy.close()


def leave(proxy: Proxy, history: Path | None, event_file: Path | None) -> None:
    """Write what was asked for, and say what the journal has lost."""
    passages = list(proxy.journal.since(0))
    if proxy.journal.dropped and (history or event_file):
        log.warning(
            "The first %d requests are missing: more has passed than the journal holds (--journal-bytes)",
            proxy.journal.dropped,
        )
    if event_file is not None:
        _write(event_file, events(passages))
    if history is not None:
        _write(history, checker_lines(passages))


def _write(path: Path, objects: Any) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in objects)
