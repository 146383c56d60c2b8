"""A running Ottla that the test kit has not started, controlled over its admin port. shell"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from ottla.printable import printable
from ottla.protocol.api_keys import ApiKey
from ottla.testkit.control import KIT_CLIENT_ID
from ottla.testkit.in_memory.wire import message
from ottla.testkit.kit.admin import Admin, AdminFailed, parse_admin_url
from ottla.testkit.kit.broker import Broker
from ottla.testkit.kit.leftovers import GROUP, HANGING, TOPIC, TRANSACTIONAL_ID
from ottla.testkit.kit.pool import TRANSACTION_VERSION, setting_text
from ottla.testkit.kit.process import NeedsOwnBroker
from ottla.testkit.kit.remote_settings import RemoteSettings
from ottla.testkit.kit.wire import connect

__tracebackhide__ = True  # pytest then shows the line of the test and the message
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404


class RemoteProblem(ValueError):
    """The broker cannot be controlled at this address; the message is one line."""


class RemoteBroker(Broker):
    """A running Ottla with `--test-control`. It must not have other tests at the same time: there is one clock."""

    def __init__(self, bootstrap: str, admin: Admin) -> None:
        super().__init__(bootstrap, admin=admin)
        self.settings = RemoteSettings(self.wire)
        self._broker_count = 1

    @property
    def broker_count(self) -> int:
        return self._broker_count

    def take_over(self) -> None:
        """Undo what an interrupted run has left. From now on, keep what exists on the broker."""
        self.faults.clear()
        self.reset_brokers()
        self.clock.reset()
        self._broker_count = len(self.brokers())
        self.leftovers.keep(TOPIC, self.topics())
        self.leftovers.keep(GROUP, self.wire.groups())
        self.leftovers.keep(TRANSACTIONAL_ID, (each.transactional_id for each in self.transactions()))
        self.leftovers.keep(HANGING, self.hanging_transactions())

    def apply(
        self,
        *,
        transaction_version: int | None = None,
        properties: Mapping[str, object] | None = None,
        as_version: str | None = None,
        brokers: int | None = None,
    ) -> None:
        """Change settings until `end`. NeedsOwnBroker, with the reason, for those that this broker cannot have."""
        if as_version is not None:
            raise NeedsOwnBroker(f"{self.bootstrap} cannot imitate Kafka {as_version} for one test")
        if brokers not in (None, self.broker_count):
            raise NeedsOwnBroker(
                f"{self.bootstrap} has --brokers {self.broker_count}, and the test needs --brokers {brokers}"
            )
        settings = {name: setting_text(value) for name, value in (properties or {}).items()}
        level = settings.pop(TRANSACTION_VERSION, None)
        if transaction_version is None and level is not None:
            transaction_version = int(level)
        self.settings.apply(settings, transaction_version)

    def _restore_settings(self) -> None:
        self.settings.restore()

    def is_reached_by(self, bootstrap: str) -> bool:
        """Return whether a request to this address arrives at this broker, as its journal shows."""
        client_id = f"{KIT_CLIENT_ID}-{uuid4().hex}"
        self.begin()
        with connect(bootstrap, client_id) as connection:
            connection.send(message(ApiKey.METADATA, 5, topics=[], allow_auto_topic_creation=False), 5)
        return any(client_id.encode() in entry.request for entry in self.journal())


def connect_remote(bootstrap: str, url: str, token: str | None) -> RemoteBroker:
    """Return the broker of these addresses, without faults. Raises RemoteProblem if it cannot be controlled."""
    option = f"--ottla-admin {printable(url)}"
    try:
        admin = Admin(parse_admin_url(url), _check_token(token))
    except ValueError as error:
        raise RemoteProblem(f"{option}: {error}") from None
    cluster_id = _ask(admin, option, "/v1/broker", "it is not the admin port of an Ottla broker").get("cluster_id")
    _ask(admin, option, "/v1/clock", "the broker was started without --test-control")
    broker = RemoteBroker(bootstrap, admin)
    try:
        _compare(broker, option, cluster_id)
        broker.take_over()
    except RemoteProblem:
        broker.close()
        raise
    except (OSError, RuntimeError, ValueError) as error:
        broker.close()
        raise RemoteProblem(f"--ottla-bootstrap {bootstrap}: {printable(str(error))}") from None
    return broker


def _check_token(token: str | None) -> str | None:
    if token is not None and not (token and all("!" <= character <= "~" for character in token)):
        raise ValueError("--ottla-admin-token must be ASCII characters without blanks")
    return token


def _ask(admin: Admin, option: str, path: str, if_nothing: str) -> dict[str, Any]:
    try:
        answer = admin.get(path)
    except AdminFailed as refusal:
        reason = {_NOT_FOUND: if_nothing, _UNAUTHORIZED: "the token is missing or wrong: set --ottla-admin-token"}
        raise RemoteProblem(f"{option}: {reason.get(refusal.status, str(refusal))}") from None
    except OSError as error:
        reached = "set the address of `ottla serve --admin-listen`, as this machine reaches it"
        raise RemoteProblem(f"{option}: no answer: {printable(str(error.strerror or error))}: {reached}") from None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RemoteProblem(f"{option}: it is not the admin port of an Ottla broker")
    return answer


def _compare(broker: RemoteBroker, option: str, cluster_id: object) -> None:
    """Raise RemoteProblem if the admin port is that of another broker."""
    reply = broker.wire.ask(ApiKey.METADATA, 5, topics=[], allow_auto_topic_creation=False)
    other = f"--ottla-bootstrap {broker.bootstrap} is another broker"
    if reply.cluster_id != cluster_id:
        clusters = printable(f"of cluster {reply.cluster_id}, and the admin port is that of cluster {cluster_id}")
        raise RemoteProblem(f"{option}: {other}, {clusters}")
    if not broker.is_reached_by(broker.bootstrap):
        raise RemoteProblem(f"{option}: {other}, with the same cluster id: its requests are not in the journal")
