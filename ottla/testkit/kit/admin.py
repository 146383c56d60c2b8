"""Requests to an admin port, with nothing but the standard library. shell"""

import json
from collections.abc import Generator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Final, NoReturn
from urllib.parse import quote, urlsplit

from ottla.printable import printable

__tracebackhide__ = True  # pytest then shows the line of the test and the message
CONNECT_S: Final = 10.0
TIMEOUT_S: Final = 90.0
DEFAULT_URL: Final = "http://127.0.0.1:9644"
MOST_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""A page of the journal has at most 64 MiB of requests and replies, in base64."""


class AdminFailed(RuntimeError):
    """The admin port refused the request; the message is the admin port's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def parse_admin_url(text: str) -> str:
    """Return the address of an admin port as http://HOST:PORT, from this or from HOST:PORT. ValueError for any other,
    with the valid form."""
    url = (text if "://" in text else f"http://{text}").rstrip("/")
    try:
        parts = urlsplit(url)
        bare = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
        valid = parts.scheme == "http" and parts.hostname and parts.port and bare
    except ValueError:
        valid = False
    if not valid:
        reason = ": the admin port has no TLS" if url.startswith("https:") else ""
        raise ValueError(f"must be http://HOST:PORT, such as {DEFAULT_URL}{reason}")
    return url


class Admin:
    """Client of the admin port at this address. Each request opens a new connection, as the broker may restart."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self._token = token

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def post(self, path: str, body: object = None) -> Any:
        return self.request("POST", path, body)

    def put(self, path: str, body: object) -> Any:
        return self.request("PUT", path, body)

    def delete(self, path: str) -> Any:
        return self.request("DELETE", path)

    def lines(self, path: str) -> Generator[Any, None, None]:
        """Yield the JSON value of each line of a streamed response.

        Raises AdminFailed if the admin port refuses, ConnectionError if it does not answer or if the broker ends.
        """
        connection, response = self._open("GET", path)
        if response.status >= 400:
            _raise_refusal("GET", path, response, _read(connection, response))
        assert connection.sock is not None
        connection.sock.settimeout(None)  # the stream may send nothing for a long time
        try:
            while line := response.readline():
                yield json.loads(line)
        except HTTPException as error:
            raise ConnectionError(f"the connection to {self.url} broke: {error!r}") from error
        finally:
            connection.close()

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Return the JSON of the response. Raises AdminFailed for a refusal, ConnectionError without a response."""
        connection, response = self._open(method, path, body)
        answer = _read(connection, response)
        if response.status >= 400:
            _raise_refusal(method, path, response, answer)
        return answer

    def _open(self, method: str, path: str, body: object = None) -> tuple[HTTPConnection, HTTPResponse]:
        address = urlsplit(self.url)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=CONNECT_S)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.connect()
            connection.sock.settimeout(TIMEOUT_S)
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            return connection, connection.getresponse()
        except (HTTPException, OSError) as error:
            connection.close()
            if isinstance(error, OSError):
                raise
            raise ConnectionError(f"the connection to {self.url} broke: {error!r}") from error


def _read(connection: HTTPConnection, response: HTTPResponse) -> Any:
    """Return the whole response as JSON."""
    try:
        content = response.read(MOST_ANSWER_BYTES + 1)
    except HTTPException as error:
        raise ConnectionError(f"the connection to {connection.host}:{connection.port} broke: {error!r}") from error
    finally:
        connection.close()
    if len(content) > MOST_ANSWER_BYTES:
        raise ConnectionError(f"the answer of {connection.host}:{connection.port} is larger than any of an admin port")
    return json.loads(content) if content else None


def _raise_refusal(method: str, path: str, response: HTTPResponse, answer: Any) -> NoReturn:
    message = answer.get("error") if isinstance(answer, dict) else None
    raise AdminFailed(response.status, printable(message or f"{method} {path}: {response.status}"))


def quote_segment(name: str) -> str:
    """Return the name, quoted as one segment of a path."""
    return quote(name, safe="")
