"""Record what Apache Kafka 4.3.1 answers to each row of the table of odd frames.

    PYTHONPATH=.:tests/conformance python tests/conformance/frames/record.py FILE.jsonl.gz

Its broker is asked to append the batch; its kafka-dump-log and its consumer read it from a segment file that was
written by hand, so they say what they say also of a batch that the broker refuses.
"""

import gzip
import json
import re
import shutil
import sys
import tempfile
from base64 import b64encode
from pathlib import Path

from storage_requests import StorageRequests, part
from targets import ApacheKafka, run_tool

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from tests.conformance.frames.rows import rows
from tests.unusual_frames import Row

HERE = Path(__file__).parent
WRITTEN, PRODUCED = "frames", "produced"
# The records are old.
TOPIC_CONFIGS = {"max_message_bytes": "10000000", "message_timestamp_before_max_ms": str(1 << 60), "retention_ms": "-1"}
SEGMENT = "00000000000000000000.log"


def ask_kafka(table: list[Row], directory: Path) -> list[dict[str, object]]:
    """Kafka's answers to each row."""
    kafka = ApacheKafka(directory, {"auto.create.topics.enable": "false"}).start()
    try:
        requests = StorageRequests(kafka.bootstrap, "frames")
        for topic in (WRITTEN, PRODUCED):
            requests.create(topic, partitions=len(table), **TOPIC_CONFIGS)
        produced = [produce(requests, index, row.batch) for index, row in enumerate(table)]
        requests.close()
        assert kafka.stop(timeout_s=120) == 143, kafka.log_tail()
        for index, row in enumerate(table):
            folder = kafka.data_dir / f"{WRITTEN}-{index}"
            for file in folder.iterdir():
                if file.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                    file.unlink()
            (folder / SEGMENT).write_bytes(row.batch)
        dumped = read_partitions("dump", kafka.data_dir, len(table))
        kafka.start()
        consumed = read_partitions("consume", kafka.bootstrap, len(table))
    finally:
        kafka.stop()
    return [
        {
            "name": row.name,
            "codec": row.codec,
            "count": row.count,
            "payload": b64encode(row.payload).decode(),
            "produce": produced[index],
            "dump": answer(r"^\| offset: (\d+)", *dumped[index]),
            "consumer": answer(r"^record (\d+) (?:\d+) (?:\d+)$", *consumed[index]),
            "values": re.findall(r"^record (?:\d+) (\d+ \d+)$", consumed[index][0], re.MULTILINE),
        }
        for index, row in enumerate(table)
    ]


def produce(requests: StorageRequests, index: int, batch: bytes) -> str:
    """The error code and message of a Produce."""
    row = part(ApiKey.PRODUCE, "TopicProduceData.PartitionProduceData", index=index, records=batch)
    data = part(ApiKey.PRODUCE, "TopicProduceData", name=PRODUCED, partition_data=[row])
    reply = requests._ask(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=[data])
    (answered,) = reply.responses[0].partition_responses
    return ErrorCode(answered.error_code).name


def read_partitions(mode: str, where: object, count: int) -> list[tuple[str, str]]:
    """(what it printed, how it failed) of each partition."""
    done = run_tool(str(HERE / "AskKafka.java"), mode, where, WRITTEN, count)
    found = re.findall(r"^@begin \d+\n(.*?)^@end (.*?)$", done.stdout, re.MULTILINE | re.DOTALL)
    assert len(found) == count, done.stdout[-3000:] + done.stderr[-3000:]
    return found


def answer(record: str, printed: str, failure: str) -> dict[str, object]:
    """Return the number of records that a reader printed, and its failure."""
    return {"records": len(re.findall(record, printed, re.MULTILINE)), "failure": failure}


def main(file: Path) -> None:
    directory = Path(tempfile.mkdtemp(prefix="frames-"))
    try:
        said = ask_kafka(rows(), directory)
    finally:
        shutil.rmtree(directory)
    text = "".join(json.dumps(row) + "\n" for row in said)
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
