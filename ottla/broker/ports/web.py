"""The port that fetches URLs, in a thread per call, with a time limit and a size limit. shell"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ottla import files
from ottla.broker.ports.workers import OnEnd, WorkerJob

_PIECE_BYTES: Final = 65_536


class Web:
    """Runs calls that may fetch a URL, each in a thread of its own: a server that does not answer delays no other call.

    `on_end` runs as an event in a turn of its own.
    """

    __slots__ = ("_from_thread",)

    def __init__(self, from_thread: Callable[[Callable[[], None]], None]) -> None:
        """Create the port. `from_thread` is `Clock.from_thread`."""
        self._from_thread = from_thread

    def start(self, call: Callable[[], Any], on_end: OnEnd) -> None:
        job = WorkerJob(call, on_end, self._from_thread)
        threading.Thread(target=job.run, name="web", daemon=True).start()


def fetch(url: str, most_bytes: int, timeout_s: float) -> bytes:
    """Return the content of a `file`, `http` or `https` URL. Raises OSError with the reason.

    Redirects are not followed, and no proxy is used. `timeout_s` limits each wait for the server, and the whole read of
    the body.
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
    # Imported here, so that only brokers that fetch over HTTP load these modules.
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
