"""The proxy as a process of its own, with the files it writes at the end. shell"""

import asyncio
import json
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.testkit.history.events import events
from ottla.testkit.history.lines import checker_lines
from ottla.testkit.proxying.proxy import Proxy

if TYPE_CHECKING:
    from ottla.admin.port import AdminPort
    from ottla.admin.settings import AdminSettings

log = logging.getLogger(__name__)


async def serve(proxy: Proxy, ready: Callable[[str | None], None], admin: "AdminSettings | None" = None) -> None:
    """Run until SIGINT or SIGTERM. Raises OSError if a port is not available.

    Calls `ready` with the address of the admin port, or None, when clients can connect.
    """
    await proxy.start()
    port = await _open_admin(proxy, admin) if admin is not None else None
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ready(port.address if port is not None else None)
    await stop.wait()
    if port is not None:
        port.close()
    await proxy.close()


async def _open_admin(proxy: Proxy, settings: "AdminSettings") -> "AdminPort":
    from ottla.testkit.proxying.admin import open_admin  # imports HTTP code that most proxies do not need

    return await open_admin(proxy, settings)


def leave(proxy: Proxy, history: Path | None, event_file: Path | None) -> None:
    """Write the requested files, and report how much the journal has dropped."""
    entries = list(proxy.journal.since(0))
    if proxy.journal.dropped and (history or event_file):
        log.warning(
            "The first %d requests are missing from the files: the journal was full (--journal-bytes)",
            proxy.journal.dropped,
        )
    if event_file is not None:
        _write(event_file, events(entries))
    if history is not None:
        _write(history, checker_lines(entries))


def _write(path: Path, objects: Any) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in objects)
