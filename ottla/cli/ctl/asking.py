"""Requests of the commands to an admin port. A refusal or a missing answer is one line and an exit code. shell"""

import sys
from collections.abc import Callable, Generator
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from ottla.cli.admin import token_or_exit
from ottla.cli.output import complain
from ottla.testkit.kit.admin import Admin, AdminFailed

DEFAULT_URL: Final = "http://127.0.0.1:9644"
REFUSED, FAILED = 1, 2
_NOT_FOUND: Final = 404


class Port:
    """The admin port at an address, with the token of a file if one is given."""

    def __init__(self, url: str, token_file: str | None) -> None:
        address = url if "://" in url else f"http://{url}"
        self.url = address.rstrip("/")
        try:
            parts = urlsplit(self.url)
            sound = parts.scheme == "http" and parts.hostname and parts.port and not parts.path and not parts.query
        except ValueError:
            sound = False
        if not sound:
            _exit(FAILED, f"--admin {url}: must be http://HOST:PORT, such as {DEFAULT_URL}")
        self._admin = Admin(self.url, None if token_file is None else token_or_exit("--admin-token-file", token_file))

    def get(self, path: str) -> Any:
        """Send GET and return the answer. A refusal ends the command."""
        return self._call(lambda: self._admin.get(path))

    def find(self, path: str) -> Any:
        """Send GET and return the answer, None if nothing is at this path."""
        return self._call(lambda: self._admin.get(path), or_nothing=True)

    def post(self, path: str, body: object = None) -> Any:
        """Send POST and return the answer. A refusal ends the command."""
        return self._call(lambda: self._admin.post(path, body))

    def put(self, path: str, body: object) -> Any:
        """Send PUT and return the answer. A refusal ends the command."""
        return self._call(lambda: self._admin.put(path, body))

    def delete(self, path: str) -> Any:
        """Send DELETE and return the answer. A refusal ends the command."""
        return self._call(lambda: self._admin.delete(path))

    def lines(self, path: str) -> Generator[Any, None, None]:
        """Yield the objects of a stream when they arrive. Its end ends the command, and so does a refusal."""
        stream = self._admin.lines(path)
        yield self._call(lambda: next(stream))
        try:
            yield from stream
        except OSError:
            pass  # the broker ended during the stream
        finally:
            stream.close()
        _exit(REFUSED, f"{self.url} has ended the stream")

    def _call(self, call: Callable[[], Any], *, or_nothing: bool = False) -> Any:
        try:
            return call()
        except AdminFailed as refusal:
            if refusal.status == _NOT_FOUND and or_nothing:
                return None
            if refusal.status == _NOT_FOUND and str(refusal).startswith("There is nothing at "):
                _exit(REFUSED, f"{self.url} cannot do that: {self._what_it_lacks()}")
            _exit(REFUSED, str(refusal))
        except OSError as error:
            what = f"no answer from {self.url}: {error.strerror or error}"
            _exit(FAILED, f"{what}. Name the port of `ottla serve --admin-listen` with --admin")
        except ValueError:
            _exit(FAILED, f"{self.url} is not an admin port of Ottla")

    def _what_it_lacks(self) -> str:
        if self.find("/v1/proxy") is not None:
            return "a proxy cannot move the time of a broker"
        return "the broker was started without --test-control"


def refuse(message: str) -> NoReturn:
    """End the command because of an invalid argument."""
    _exit(FAILED, message)


def _exit(code: int, message: str) -> NoReturn:
    complain(message)
    sys.exit(code)
