"""Options of listeners, connections and their security: the first fields of `Config`. pure

Names, defaults and ranges are Kafka's (`AbstractKafkaConfig.CONFIG_DEF` of 4.3.1); where Ottla's default differs, the
meaning has the reason.
"""

import re
from dataclasses import dataclass
from typing import Final

from ottla.broker.config.listeners import (
    DEFAULT_PROTOCOL_MAP,
    ENCRYPTED,
    LISTENER_RANGE,
    WITH_LOGIN,
    Listener,
    parse_connections_per_ip,
    parse_listeners,
    parse_protocol_map,
)
from ottla.broker.config.option import (
    DYNAMIC,
    INT32_MAX,
    LISTENER,
    MECHANISM,
    boolean,
    int32,
    int64,
    items,
    password,
    text,
)
from ottla.broker.config.principals import parse_principal_rules, parse_super_users
from ottla.broker.config.scram import parse_scram_users

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
STORES: Final = ("JKS", "PKCS12", "PEM")
_CLUSTER_ID: Final = re.compile("[A-Za-z0-9_+/=-]{0,64}")


def _check_roles(given: str) -> None:
    if "broker" not in given.split(","):
        raise ValueError("broker, or broker,controller")


def _check_cluster_id(given: str) -> None:
    if not _CLUSTER_ID.fullmatch(given):
        raise ValueError("up to 64 letters, digits, - and _ (or +, / and =)")


def _check_log_dirs(given: str) -> None:
    if not given or "," in given:
        raise ValueError("one directory")


def _check_authorizer(given: str) -> None:
    if given not in ("", STANDARD_AUTHORIZER):
        raise ValueError(f"{STANDARD_AUTHORIZER}, or empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The part of a broker's configuration that the server uses: node, listeners, connections, TLS, ACLs and SASL."""

    # Node, cluster and listeners.
    node_id: int = int32(1, "The broker's id.", also={"broker.id": 1})
    cluster_id: str = text(
        "",
        "Ottla's own: the cluster id of a new data directory (Kafka: kafka-storage format -t); empty draws a random "
        "one. The broker does not start on a directory of another cluster.",
        check=_check_cluster_id,
    )
    add_scram: str = password(
        "Ottla's own: the SCRAM users of a new data directory, as for kafka-storage format --add-scram: "
        "SCRAM-SHA-512=[name=alice,password=alice-secret], comma separated.",
        check=parse_scram_users,
    )
    process_roles: str = items("broker", "Must contain broker, which is the controller as well.", check=_check_roles)
    listeners: tuple[Listener, ...] = items(
        (Listener("PLAINTEXT", "127.0.0.1", 9092),),
        f"Where to listen: {LISTENER_RANGE}. An empty host is every interface (Kafka's default), port 0 a free port. "
        "Names and ports must differ. A client receives the address of the listener that it has connected to.",
        read=parse_listeners,
    )
    advertised_listeners: tuple[Listener, ...] = items(
        (),
        "The addresses that clients connect to, by listener name, if they differ from listeners. Clients of a listener "
        "that is not in the list receive no broker address.",
        read=parse_listeners,
    )
    controller_listener_names: str = text(
        "", "Listeners with these names are not opened: no separate controller exists."
    )
    listener_security_protocol_map: str = text(
        DEFAULT_PROTOCOL_MAP, "The security protocol of each listener, by its name.", check=parse_protocol_map
    )
    inter_broker_listener_name: str = text(
        "", "The listener for other brokers. Ottla has no other brokers, but the listener must be an advertised one."
    )
    log_dirs: str = text(
        "ottla-data", "The data directory. Ottla has exactly one.", also={"log.dir": 1}, check=_check_log_dirs
    )

    # Connections.
    socket_request_max_bytes: int = int32(
        104857600, "The largest request; a larger one closes the connection.", at_least=1
    )
    max_request_body_bytes: int = int32(
        1048576, "Ottla's own: the largest request except Produce; a larger one closes the connection.", at_least=1024
    )
    queued_max_request_bytes: int = int64(
        -1,
        "The memory for received requests (one half) and for replies that are not sent yet (the other half; Ottla's "
        "own). At the limit large ones wait. -1 (Kafka: no limit): an eighth of the machine's memory, at most 256 MiB.",
        at_least=-1,
    )
    max_incremental_fetch_session_cache_slots: int = int32(
        1000,
        "The most fetch sessions (KIP-227); further consumers send full requests. The partitions of all sessions take "
        "at most a sixteenth of `queued.max.request.bytes`, in addition to it (Ottla's own).",
        at_least=0,
    )
    max_connections: int = int32(
        INT32_MAX,
        "The most connections; others wait until one ends. Connections have the file descriptors that logs leave (half "
        "of the process's limit, less 96); the broker closes connections beyond that number.",
        DYNAMIC,
    )
    max_connections_per_ip: int = int32(
        INT32_MAX, "The most connections from one IP address; further ones are closed.", DYNAMIC
    )
    max_connections_per_ip_overrides: str = items(
        "",
        "The most connections from single addresses or host names: HOST:NUMBER, comma separated.",
        DYNAMIC,
        check=parse_connections_per_ip,
    )
    max_connection_creation_rate: int = int32(
        INT32_MAX, "The most new connections in a second; further ones wait.", DYNAMIC
    )
    quota_window_num: int = int32(11, "The number of samples that client quotas are measured over.", at_least=1)
    quota_window_size_seconds: int = int32(1, "The duration of each sample of client quotas.", at_least=1)
    controller_quota_window_num: int = int32(
        11, "The number of samples that the quota controller_mutation_rate is measured over.", at_least=1
    )
    controller_quota_window_size_seconds: int = int32(
        1, "The duration of each sample of the quota controller_mutation_rate.", at_least=1
    )
    connections_max_idle_ms: int = int64(
        600000, "The time after which an idle connection is closed; -1: never.", at_least=-1
    )

    # TLS. For a single listener: listener.name.NAME.ssl...
    ssl_keystore_type: str = text(
        "JKS",
        "The format of the keystore. With JKS the file must be PKCS12, which Java reads too; real JKS is not read.",
        DYNAMIC | LISTENER,
        one_of=STORES,
    )
    ssl_keystore_location: str = text("", "The file with the broker's key and certificates.", DYNAMIC | LISTENER)
    ssl_keystore_password: str = password("The password of a PKCS12 keystore.", DYNAMIC | LISTENER)
    ssl_key_password: str = password(
        "The password of the key in a PEM file or in ssl.keystore.key.", DYNAMIC | LISTENER
    )
    ssl_keystore_key: str = password("The broker's private key as PEM (PKCS 8), instead of a file.", DYNAMIC | LISTENER)
    ssl_keystore_certificate_chain: str = password(
        "The certificate chain as PEM, the broker's own first.", DYNAMIC | LISTENER
    )
    ssl_truststore_type: str = text(
        "JKS", "The format of the truststore, as for ssl.keystore.type.", DYNAMIC | LISTENER, one_of=STORES
    )
    ssl_truststore_location: str = text(
        "", "The file with the CA certificates that client certificates are checked against.", DYNAMIC | LISTENER
    )
    ssl_truststore_password: str = password("The password of a PKCS12 truststore.", DYNAMIC | LISTENER)
    ssl_truststore_certificates: str = password("The CA certificates as PEM, instead of a file.", DYNAMIC | LISTENER)
    ssl_client_auth: str = text(
        "none", "Whether clients present a certificate.", LISTENER, one_of=("none", "requested", "required")
    )
    ssl_principal_mapping_rules: str = text(
        "DEFAULT",
        "How the name in a client's certificate becomes the user of ACLs and quotas: RULE:PATTERN/REPLACEMENT/[L|U], "
        "comma separated. The first rule that matches the name is applied. DEFAULT takes the whole name.",
        LISTENER,
        check=parse_principal_rules,
    )
    ssl_enabled_protocols: str = items(
        "TLSv1.2,TLSv1.3", "The TLS versions that clients may use.", LISTENER, one_of=("TLSv1.2", "TLSv1.3")
    )
    ssl_cipher_suites: str = items(
        "",
        "The cipher suites of TLS 1.2, by their names in Java or OpenSSL; empty: OpenSSL's default. All suites of "
        "TLS 1.3 are always on; a list of only these turns TLS 1.2 off.",
        LISTENER,
    )
    ssl_allow_dn_changes: bool = boolean(
        False, "Whether a new keystore may have a certificate with another name (DN).", LISTENER
    )
    ssl_allow_san_changes: bool = boolean(
        False,
        "Whether the certificate of a new keystore may lack alternative names (SAN) that the old one has.",
        LISTENER,
    )

    # Authorization.
    authorizer_class_name: str = text(
        "",
        "The authorizer: Kafka's StandardAuthorizer (of org.apache.kafka.metadata.authorizer), which decides by the "
        "ACLs in the metadata. Empty: every client may do everything.",
        check=_check_authorizer,
    )
    super_users: str = text(
        "",
        "The users that may do everything, whatever the ACLs are: User:NAME, semicolon separated.",
        check=parse_super_users,
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether every user may do everything with a resource that no ACL matches."
    )

    # SASL. For a single listener: listener.name.NAME..., for one of its mechanisms: listener.name.NAME.MECHANISM...
    sasl_enabled_mechanisms: str = items(
        "GSSAPI",
        "The mechanisms of listeners with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's default is "
        "not supported, so a listener with SASL needs this option.",
        LISTENER,
    )
    sasl_server_max_receive_size: int = int32(
        524288, "The largest request of a client that has not logged in.", LISTENER
    )
    sasl_server_callback_handler_class: str = text(
        "", "The Kafka class that checks the tokens of OAUTHBEARER. Other mechanisms ignore it.", MECHANISM
    )
    connections_max_reauth_ms: int = int64(
        0,
        "The time after which a client must authenticate again; if it does not, its next request closes the "
        "connection. 0: no limit.",
        LISTENER | MECHANISM,
    )
    connection_failed_authentication_delay_ms: int = int32(100, "The delay of the reply to a failed login.")
    sasl_oauthbearer_jwks_endpoint_url: str = text(
        "", "The URL of the keys (JWKS) that check the signatures of tokens; file:... for a file.", LISTENER | MECHANISM
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = int64(
        3600000, "How often these keys are fetched again.", LISTENER | MECHANISM
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = int64(
        100, "The first delay after a failed fetch; it doubles each time.", LISTENER | MECHANISM
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = int64(
        10000, "The longest delay after failed fetches.", LISTENER | MECHANISM
    )
    sasl_oauthbearer_clock_skew_seconds: int = int32(
        30, "By how much the clock of the token issuer may differ.", LISTENER | MECHANISM
    )
    sasl_oauthbearer_expected_audience: str = items(
        "", "The accepted audiences; a token must name one of them.", LISTENER | MECHANISM
    )
    sasl_oauthbearer_allow_unverified_audience: bool = boolean(
        False,
        "Ottla's own: whether to accept tokens for any audience when no audience is expected.",
        LISTENER | MECHANISM,
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = boolean(
        False, "Ottla's own: whether to accept tokens of any issuer when no issuer is expected.", LISTENER | MECHANISM
    )
    sasl_oauthbearer_expected_issuer: str = text("", "The issuer that a token must name.", LISTENER | MECHANISM)
    sasl_oauthbearer_scope_claim_name: str = text(
        "scope", "The claim that holds the scopes of a token.", LISTENER | MECHANISM
    )
    sasl_oauthbearer_sub_claim_name: str = text(
        "sub", "The claim that holds the name of the user.", LISTENER | MECHANISM
    )

    def advertised_address(self, listener: Listener) -> Listener | None:
        """Return the advertised address of a listener; None if `advertised.listeners` leaves it out.

        An empty host is this machine's name, port 0 the port that was bound.
        """
        if not self.advertised_listeners:
            return listener
        return next((other for other in self.advertised_listeners if other.name == listener.name), None)

    def protocol(self, listener: Listener) -> str:
        """Return the security protocol of a listener."""
        return parse_protocol_map(self.listener_security_protocol_map or DEFAULT_PROTOCOL_MAP)[listener.name]

    def is_encrypted(self, listener: Listener) -> bool:
        """Return whether a listener uses TLS."""
        return self.protocol(listener) in ENCRYPTED

    def has_logins(self, listener: Listener) -> bool:
        """Return whether clients of a listener log in by SASL."""
        return self.protocol(listener) in WITH_LOGIN
