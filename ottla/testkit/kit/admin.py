"""Requests to an admin port, with nothing but the standard library. shell"""

import json
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import quote, urlsplit

__tracebackhide__ = True  # pytest then shows the line of the test, and what it was told
TIMEOUT_S: Final = 90.0


class AdminFailed(RuntimeError):
    """The admin port refused: the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Admin:
    """The admin port at this address. Each request has a connection of its own: the broker may be gone in between."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self._token = token

    def get(self, path: str) -> Any:
        return self._ask("GET", path)

    def post(self, path: str, body: object = None) -> Any:
        return self._ask("POST", path, body)

    def put(self, path: str, body: object) -> Any:
        return self._ask("PUT", path, body)

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", path)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of the answer. AdminFailed for a refusal, ConnectionError if nobody answers."""
        address = urlsplit(self.url)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT_S)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
        except HTTPException as error:
            raise ConnectionError(f"{self.url} broke off: {error!r}") from error
        finally:
            connection.close()
        answer = json.loads(content) if content else None
        if response.status >= 400:
            message = answer.get("error") if isinstance(answer, dict) else None
            raise AdminFailed(response.status, message or f"{method} {path}: {response.status}")
        return answer


def escaped(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")
