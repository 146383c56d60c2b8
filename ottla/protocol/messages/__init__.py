"""Messages that kafka-python lacks, from Kafka's schemas: what its own classes are, with the same metaclass. pure"""

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=__package__):  # type: ignore[call-arg]
    """KIP-848."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=__package__):  # type: ignore[call-arg]
    """KIP-848."""
