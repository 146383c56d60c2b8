"""What ACLs a Kafka has, asked with kafka-python's own admin client: it knows TLS and SASL. shell"""

from collections.abc import Mapping, Sequence

from ottla.protocol.acls import PatternType
from ottla.protocol.security_records import AccessControlEntryRecord


class AclsRefused(Exception):
    """The brokers could not be asked, or did not tell; the message is one line that says why."""


def describe_acls(
    bootstrap: Sequence[str], options: Mapping[str, object], resource_type: int, name: str, timeout_s: float
) -> list[AccessControlEntryRecord]:
    """The entries whose pattern the name matches, without ids; `options` are those of KafkaAdminClient."""
    from kafka.admin import (
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        KafkaAdminClient,
        ResourcePatternFilter,
        ResourceType,
    )
    from kafka.errors import KafkaError, KafkaTimeoutError, SecurityDisabledError

    timeout_ms = round(timeout_s * 1000)
    pattern = ResourcePatternFilter(ResourceType(resource_type), name, ACLResourcePatternType(PatternType.MATCH))
    wanted = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    admin = None
    try:
        admin = KafkaAdminClient(
            **{
                "bootstrap_servers": list(bootstrap),
                "request_timeout_ms": timeout_ms,
                "bootstrap_timeout_ms": timeout_ms,
                **options,
            }
        )
        found, _ = admin.describe_acls(wanted)
    except SecurityDisabledError:
        raise AclsRefused("the broker has no authorizer (authorizer.class.name): everybody may do everything") from None
    except KafkaTimeoutError:  # kafka-python tries again where a login or a handshake fails
        raise AclsRefused(
            f"{', '.join(bootstrap)}: no connection within {timeout_s:g} s. Is the address right, and does the broker "
            "take this protocol and this login? Its log says why not"
        ) from None
    except (KafkaError, OSError, ValueError, AssertionError) as error:
        raise AclsRefused(f"{', '.join(bootstrap)}: {error!s:.300}") from None
    finally:
        if admin is not None:
            admin.close()
    return [
        AccessControlEntryRecord(
            b"",
            int(each.resource_pattern.resource_type),
            each.resource_pattern.resource_name,
            int(each.resource_pattern.pattern_type),
            each.principal,
            each.host,
            int(each.operation),
            int(each.permission_type),
        )
        for each in found
    ]
