"""The ZooKeeper node with the last block of producer ids, and addresses of ZooKeeper. pure

Source: `ProducerIdBlockZNode` of Kafka 3.9.1, `ConnectStringParser` of ZooKeeper.
"""

import json
from typing import Final, NamedTuple

NODE: Final = "/latest_producer_id_block"
MOST_BYTES: Final = 1_000
"""Longest content of the node that is read; a block takes some 80 bytes."""
LAST_ID: Final = 2**63 - 1


class Block(NamedTuple):
    """The last block that was taken: the id of the broker that took it, its first and its last id."""

    broker: int
    first: int
    last: int


class BadBlock(ValueError):
    """Content of the node that is no block. The text says why."""


def parse_block(data: bytes) -> Block | None:
    """Return the block in the node's JSON; None if the node is empty, as Kafka creates it. Raises BadBlock."""
    if not data:
        return None
    if len(data) > MOST_BYTES:
        raise BadBlock(f"{len(data)} bytes are no block of producer ids")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise BadBlock("it has no JSON") from None
    if not isinstance(fields, dict) or fields.get("version") != 1 or isinstance(fields["version"], bool):
        raise BadBlock("it has no block of version 1")
    broker, first, last = fields.get("broker"), _number(fields, "block_start"), _number(fields, "block_end")
    if not isinstance(broker, int) or isinstance(broker, bool):
        raise BadBlock("it has no number for broker")
    if not 0 <= first <= last <= LAST_ID:
        raise BadBlock(f"the block {first} to {last} is not within 0 to {LAST_ID}")
    return Block(broker, first, last)


def encode_block(block: Block) -> bytes:
    """Return the node's JSON, with Kafka's bytes."""
    fields = {"version": 1, "broker": block.broker, "block_start": str(block.first), "block_end": str(block.last)}
    return json.dumps(fields, separators=(",", ":")).encode()


def _number(fields: dict[str, object], name: str) -> int:
    text = fields.get(name)
    if not isinstance(text, str) or not text.isascii() or not text.isdigit():
        raise BadBlock(f"it has no digits for {name}")
    return int(text)


class ZooKeeperAddress(NamedTuple):
    """A `zookeeper.connect`: hosts with ports, and the root below which the nodes are ("" or "/ottla")."""

    hosts: str
    root: str

    def __str__(self) -> str:
        return self.hosts + self.root

    @property
    def path(self) -> str:
        """The path of the node with the last block."""
        return self.root + NODE

    @property
    def node(self) -> str:
        """The name of that node in log lines and errors."""
        return f"ZooKeeper node {self.path} of {self.hosts}"


def parse_address(text: str) -> ZooKeeperAddress:
    """Return the address in `host:port,host:port/root`. The ValueError says what is wrong."""
    hosts, slash, root = text.strip().partition("/")
    root = (slash + root).rstrip("/")
    names = [each.strip() for each in hosts.split(",")]
    if not all(names):
        raise ValueError(f"{text!r} has no host: use host:port,host:port/root")
    for name in names:
        host, colon, port = name.rpartition(":") if not name.endswith("]") else (name, "", "")
        if colon and not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{name!r} is no host:port")
    if "//" in root or any(not each.isprintable() for each in root) or {".", ".."} & set(root.split("/")):
        raise ValueError(f"{root!r} is no path of a ZooKeeper node")
    return ZooKeeperAddress(",".join(names), root)
