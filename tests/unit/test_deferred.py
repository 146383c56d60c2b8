"""Programs that use a package whose own code is deferred notice nothing."""

import subprocess
import sys

import pytest

OURS = "from ottla.protocol.requests import codec; [codec.load_messages(key) for key in (18, 22, 28, 42)]"
WHOLE = "import kafka, kafka.protocol.admin, kafka.protocol.metadata, kafka.protocol.producer"
CHECK = """
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol import producer
registered = ResponseClassRegistry._response_class_registry
for package, name, key in (
    (kafka.protocol.metadata, "ApiVersionsResponse", 18),
    (kafka.protocol.admin, "DeleteGroupsResponse", 42),
    (producer, "TxnOffsetCommitResponse", 28),
):
    theirs = getattr(package, name).__module__
    assert registered[key].__module__ == theirs != codec.response_class(key).__module__
assert kafka.protocol.admin.ACLOperation.READ == 3
assert kafka.KafkaProducer and kafka.__version__
"""


def run(*statements):
    subprocess.run([sys.executable, "-c", "\n".join(statements)], check=True)


@pytest.mark.parametrize("order", [(OURS, WHOLE), (WHOLE, OURS)], ids=["ours first", "theirs first"])
def test_the_library_is_whole_for_its_own_clients(order):
    run(*order, CHECK)


def test_crc32c_is_whole():
    run("import ottla.checksum, sys", "assert 'crc32c._cli' not in sys.modules", "import crc32c; crc32c.CRC32CHash()")
