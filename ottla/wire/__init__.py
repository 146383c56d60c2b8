"""Requests to brokers in Kafka's protocol, over connections of its own: no broker, no files of a log. pure

A module that only compares addresses or handles errors imports nothing else.
"""

SCHEME = "kafka://"
"""Begins the address of a cluster: `kafka://HOST:PORT,HOST:PORT`."""


class Unanswered(Exception):
    """No broker answered. The message is one line for the user, with the reason."""


def is_kafka_address(text: str) -> bool:
    return text.startswith(SCHEME)
