"""Requests of the commands to an admin port. A refusal or a missing answer is one line and an exit code. shell"""

from collections.abc import Callable, Generator
from typing import Any, Final

from ottla.cli.admin import token_or_exit
from ottla.cli.output import fail
from ottla.testkit.kit.admin import Admin, AdminFailed, parse_admin_url

REFUSED, FAILED = 1, 2
_NOT_FOUND: Final = 404


class Port(Admin):
    """The admin port at an address, with the token of a file if one is given. A refusal ends the command."""

    def __init__(self, url: str, token_file: str | None) -> None:
        try:
            address = parse_admin_url(url)
        except ValueError as error:
            fail(FAILED, f"--admin {url}: {error}")
        super().__init__(address, None if token_file is None else token_or_exit("--admin-token-file", token_file))

    def find(self, path: str) -> Any:
        """Send GET and return the answer, None if nothing is at this path."""
        return self._call(lambda: super(Port, self).request("GET", path), or_nothing=True)

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return the answer."""
        return self._call(lambda: super(Port, self).request(method, path, body))

    def lines(self, path: str) -> Generator[Any, None, None]:
        """Yield the objects of a stream when they arrive. Its end ends the command, and so does a refusal."""
        stream = super().lines(path)
        yield self._call(lambda: next(stream))
        try:
            yield from stream
        except OSError:
            pass  # the broker ended during the stream
        finally:
            stream.close()
        fail(REFUSED, f"{self.url} has ended the stream")

    def _call(self, call: Callable[[], Any], *, or_nothing: bool = False) -> Any:
        try:
            return call()
        except AdminFailed as refusal:
            if refusal.status == _NOT_FOUND and or_nothing:
                return None
            if refusal.status == _NOT_FOUND and str(refusal).startswith("There is nothing at "):
                fail(REFUSED, f"{self.url} cannot do that: {self._what_it_lacks()}")
            fail(REFUSED, refusal)
        except OSError as error:
            what = f"no answer from {self.url}: {error.strerror or error}"
            fail(FAILED, f"{what}. Name the port of `ottla serve --admin-listen` with --admin")
        except ValueError:
            fail(FAILED, f"{self.url} is not an admin port of Ottla")

    def _what_it_lacks(self) -> str:
        if self.find("/v1/proxy") is not None:
            return "a proxy cannot move the time of a broker"
        return "the broker was started without --test-control"
