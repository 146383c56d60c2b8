"""The port for what stands under a URL: fetched in a thread of its own, with an end and a bound. shell"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from ottla import files
from ottla.broker.ports.workers import OnEnd, WorkerJob

_PIECE_BYTES: Final = 65_536


class Web(Protocol):
    """Runs a call that may fetch elsewhere; `on_end` is an event of its own turn."""

    def start(self, call: Callable[[], Any], on_end: OnEnd) -> None: ...


class ThreadWeb:
    """A thread for each call: a server that does not answer holds up nobody else."""

    __slots__ = ("_from_thread",)

    def __init__(self, from_thread: Callable[[Callable[[], None]], None]) -> None:
        """`from_thread` is the clock's."""
        self._from_thread = from_thread

    def start(self, call: Callable[[], Any], on_end: OnEnd) -> None:
        job = WorkerJob(call, on_end, self._from_thread)
        threading.Thread(target=job.run, name="web", daemon=True).start()


def fetch(url: str, most_bytes: int, timeout_s: float) -> bytes:
    """What a `file`, `http` or `https` URL has. OSError says why nothing is had.

    Redirects are not followed, and no proxy is asked. `timeout_s` bounds each wait for the server, and all of the body.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        content = files.read(unquote(parts.path), most_bytes)
    else:
        content = _fetch_http(url, most_bytes, timeout_s)
    if len(content) > most_bytes:
        raise OSError(f"it has more than {most_bytes} bytes")
    return content


def _fetch_http(url: str, most_bytes: int, timeout_s: float) -> bytes:
    # HTTP is loaded by who has a use for it.
    import urllib.request
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError

    ends_s = time.monotonic() + timeout_s
    content = bytearray()
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(urllib.request.Request(url, headers={"Accept": "application/json"}), timeout=timeout_s) as got:
            while len(content) <= most_bytes and (piece := got.read1(_PIECE_BYTES)):
                content += piece
                if time.monotonic() > ends_s:
                    raise OSError(f"it was not read in {timeout_s:g} s")
    except HTTPError as error:
        error.close()
        raise OSError(f"the server answers {error.code}") from None
    except URLError as error:
        raise OSError(str(error.reason)) from None
    except (HTTPException, ValueError) as error:
        raise OSError(f"the server's answer cannot be read: {type(error).__name__}") from None
    return bytes(content)
