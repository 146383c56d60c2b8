"""Requests to brokers in Kafka's protocol, over one connection per broker. shell

A request without an answer raises `Unanswered`, for whatever reason. Its message is one line for the user.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

from ottla.protocol.acls import AclOperation, PermissionType
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests import codec
from ottla.wire import Unanswered
from ottla.wire.connection import DEFAULT_CLIENT_ID, BlockingConnection
from ottla.wire.login import PLAINTEXT, LoginRefused, SecurityOptions

_PLAINTEXT: Final = " (PLAINTEXT was used; for TLS or SASL give --command-config FILE)"

Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """Parse HOST:PORT, with an IPv6 host in brackets. Raises ValueError for any other text."""
    host, colon, port = text.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text} is not HOST:PORT")
    return host, int(port)


def acls_request(resource_type: int, name: str | None, pattern_type: int) -> Any:
    """Return a DescribeAcls request for the ACLs of any principal on these resources; None for any name."""
    return codec.request_class(ApiKey.DESCRIBE_ACLS)(
        resource_type_filter=resource_type,
        resource_name_filter=name,
        pattern_type_filter=pattern_type,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )


class Brokers:
    """Brokers and the connections to them. `timeout_s` applies to connecting, and to each answer."""

    remedy = " (-b HOST:PORT names the brokers to ask)"
    """What a user can do if no bootstrap address answers."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        timeout_s: float,
        security: SecurityOptions = PLAINTEXT,
        client_id: str = DEFAULT_CLIENT_ID,
    ) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._security = security
        self._doubt = "" if security else _PLAINTEXT
        self._connections: dict[Address, BlockingConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Later requests open new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def ask_any(self, message: Any) -> Any:
        """Return the answer of the first bootstrap address that answers. Raises Unanswered if none does."""
        failures = []
        for address in self._bootstrap:
            try:
                return self.ask(address, message)
            except Unanswered as error:
                failures.append(str(error))
        raise Unanswered("; ".join(failures) + self.remedy)

    def ask(self, address: Address, message: Any, version: int | None = None) -> Any:
        """Send a request to one broker and return the answer. Raises Unanswered."""
        with self.connect(address) as connection:
            return connection.send(message, version)

    @contextmanager
    def connect(self, address: Address) -> Iterator[BlockingConnection]:
        """Yield the connection to one broker. Raises Unanswered for an error on it, and drops the connection then."""
        where = "{}:{}".format(*address)
        try:
            if address not in self._connections:
                self._connections[address] = BlockingConnection(
                    *address, client_id=self._client_id, timeout_s=self._timeout_s, security=self._security
                )
            yield self._connections[address]
            return
        except ProtocolError as error:
            reason = f"{error}{self._doubt}"
        except socket.gaierror:
            reason = "no such host"
        except TimeoutError:
            reason = f"no answer within {self._timeout_s:g} s{self._doubt}"
        except LoginRefused as error:
            reason = str(error)
        except ConnectionRefusedError:
            reason = "nothing listens there"
        except ConnectionError as error:
            reason = f"{error}{self._doubt}"
        except OSError as error:
            reason = error.strerror or str(error)
        self._connections.pop(address, None)
        raise Unanswered(f"{where}: {reason}")
