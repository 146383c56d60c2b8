"""Records as the Java client of Kafka 4.3.1 compresses them by default, independent of the libraries here. pure

Each codec has three records: the key is `<codec>-<n>`, the value `<fate> <codec> <200 times x> <n>`.
"""

from base64 import b64decode
from typing import Final

from ottla.protocol.records import NewRecord

CODECS: Final = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FATES: Final = ("committed", "aborted")
_X: Final = "x" * 200
_PAYLOADS: Final = {
    ("committed", "gzip"): (
        "H4sIAAAAAAAA/zvDzMDAwJNelVmga7CJOTk/NzezpCQ1RQEkolAxTICCAcMZoD+ZIP40HL7+NAT7kwXiT6Ph608jBgD7X8T7uAIAAA=="
    ),
    ("committed", "snappy"): (
        "glNOQVBQWQAAAAABAAAAAQAAAF7EBWTUAwAAABBzbmFwcHktMLYDY29tbWl0dGVkIAkUBCB4/gEA/gEA/gEADQEIID"
        "AAAewAAhHsADH+7AD+7AD+7ABu7AAAMQXsAAQR7AAy/uwA/uwA/uwAbuwABDIA"
    ),
    ("committed", "lz4"): (
        "BCJNGGBAgkMAAAD/DcgDAAAACmx6NC0wsANjb21taXR0ZWQgbHo0IHgBALQwIDAA5gARAuYAHzHmAMYRMeYAEQTmAB"
        "8y5gDDUHh4IDIAAAAAAA=="
    ),
    ("committed", "zstd"): (
        "KLUv/QBYBAIAxALMAwAAAAx6c3RkLTCyA2NvbW1pdHRlZCB6c3RkIHggMADMAwAAAjExBDIyAAYAV0AFzIGLXYGKtRm4RAo4AQEAAA=="
    ),
    ("aborted", "gzip"): (
        "H4sIAAAAAAAA/zvBzMDAwJNelVmga7COOTEpv6gkNUUBxFeoGCZAwYDhBNCXTBBfGg5XXxqCfckC8aXRcPWlEQMAjlnJRLICAAA="
    ),
    ("aborted", "snappy"): (
        "glNOQVBQWQAAAAABAAAAAQAAAFy+BVzQAwAAABBzbmFwcHktMLIDYWJvcnRlZCAJEgQgeP4BAP4BAP4BAA0BCCAwAA"
        "HqAAIR6gAx/uoA/uoA/uoAZuoAADEF6gAEEeoAMv7qAP7qAP7qAGbqAAQyAA=="
    ),
    ("aborted", "lz4"): (
        "BCJNGGBAgkEAAAD/C8QDAAAACmx6NC0wrANhYm9ydGVkIGx6NCB4AQC0MCAwAOQAEQLkAB8x5ADEETHkABEE5AAfMuQAwVB4eCAyAAAAAAA="
    ),
    ("aborted", "zstd"): (
        "KLUv/QBY9AEApALIAwAAAAx6c3RkLTCuA2Fib3J0ZWQgenN0ZCB4IDAAyAMAAAIxMQQyMgAGAFVABcyBi1WBirQZOEQKOAEBAAA="
    ),
}


def compress_batch(fate: str, codec: str) -> tuple[list[NewRecord], bytes]:
    """Return the records and the compressed records section of their batch."""
    records = [NewRecord(f"{codec}-{n}".encode(), f"{fate} {codec} {_X} {n}".encode()) for n in range(3)]
    return records, b64decode(_PAYLOADS[fate, codec])
