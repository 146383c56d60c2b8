"""DescribeUserScramCredentials 0: the SCRAM mechanisms of users, and the iterations of each. free

No users, or null, asks for all. A user that is named twice is not described: DUPLICATE_RESOURCE. Without DESCRIBE of
the cluster the whole request is refused, with a row for each user that was named; Apache Kafka 4.3.1 sends no answer at
all if none was named. Source: `ScramImage.describe`.
"""

from typing import Final

from ottla.broker.api.authorization import DESCRIBE_CLUSTER, MESSAGES
from ottla.broker.api.context import Broker
from ottla.broker.api.indexed_rows import index_rows
from ottla.broker.api.reply import ReplyBuilder
from ottla.broker.api.request import Reply, Request
from ottla.broker.costs import LOOKUP_US
from ottla.broker.security.scram import ScramMechanism
from ottla.protocol.errors import ErrorCode

_TWICE: Final = "Cannot describe SCRAM credentials for the same user twice in a single request: "
_ABSENT: Final = "Attempt to describe a user credential that does not exist: "
_AT_ONCE: Final = 1_000


async def handle(broker: Broker, request: Request) -> Reply:
    """Return a row for each requested user, or for all users."""
    reply = ReplyBuilder(broker, request)
    results = reply.rows("results")
    users = await index_rows(broker.turns, request.body.users or (), lambda user: user.name)
    if not broker.may(request, DESCRIBE_CLUSTER):
        error, message = DESCRIBE_CLUSTER.error, MESSAGES[DESCRIBE_CLUSTER.error]
        for name in users.first:
            await results.add(name, error, message, ())
        return reply.finish(error_code=error, error_message=message, results=results)
    credentials = broker.cluster.image.scram_credentials
    for name in users.first or await _list_users(broker):
        infos = [
            (mechanism, kept.iterations)
            for mechanism in ScramMechanism
            if (kept := credentials.get((name, mechanism))) is not None
        ]
        if name in users.twice:
            await results.add(name, ErrorCode.DUPLICATE_RESOURCE, _TWICE + name, ())
        elif infos:
            await results.add(name, ErrorCode.NONE, None, infos)
        else:
            await results.add(name, ErrorCode.RESOURCE_NOT_FOUND, _ABSENT + name, ())
    return reply.finish(error_code=ErrorCode.NONE, error_message=None, results=results)


async def _list_users(broker: Broker) -> dict[str, None]:
    """Return the users that have a credential."""
    everybody: dict[str, None] = {}
    keys = list(broker.cluster.image.scram_credentials)
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        everybody.update((name, None) for name, _ in some)
        await broker.turns.spend(len(some) * LOOKUP_US)
    return everybody
