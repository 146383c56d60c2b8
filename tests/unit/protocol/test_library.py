"""Messages of kafka-python without its clients, which work as usual once a program uses them."""

import subprocess
import sys

PROGRAM = """
import sys
from ottla.protocol.requests import codec

message = codec.request_class(3)
assert not {"kafka.admin", "kafka.consumer", "kafka.producer", "kafka.net"} & sys.modules.keys()
import kafka, kafka.admin, kafka.errors as errors
from kafka import KafkaProducer
from kafka.protocol.metadata import MetadataRequest
assert message is MetadataRequest
assert kafka.KafkaAdminClient is kafka.admin.KafkaAdminClient and kafka.__version__
assert kafka.errors is errors and KafkaProducer is kafka.KafkaProducer
assert not hasattr(kafka, "nothing")
"""


def test_messages_do_not_import_the_clients_and_these_can_be_imported_later():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
