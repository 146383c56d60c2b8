"""`ottla ids`: show and raise the counter of producer ids in ZooKeeper. shell"""

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, NoReturn

import click

from ottla.broker.cluster.adoption_records import PRODUCER_ID_BLOCK
from ottla.broker.ports.zookeeper import NO_ANSWER, Answer, KazooZooKeeper, OnAnswer, Outcome
from ottla.cli.output import Output, fail, output_for, table_of, takes_format
from ottla.protocol.producer_id_node import (
    LAST_ID,
    BadBlock,
    Block,
    ZooKeeperAddress,
    encode_block,
    parse_address,
    parse_block,
)

NO_BLOCK, FAILED = 1, 2
ANSWER_S: Final = 10.0
NO_BROKER: Final = -1
"""The broker of a block that `ottla ids raise` has written."""

Ask = Callable[[KazooZooKeeper, OnAnswer], None]


class _Nodes:
    """ZooKeeper as a command uses it: each call waits for its answer."""

    def __init__(self, address: ZooKeeperAddress) -> None:
        self._address = address
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        try:
            self._zookeeper = KazooZooKeeper(address.hosts, self._calls.put)
        except ImportError:
            fail(FAILED, "ottla ids needs a client of ZooKeeper: pip install 'ottla[zookeeper]'")
        self._run_until(lambda: self._zookeeper.is_connected)

    def wait(self, ask: Ask) -> Answer:
        """Return the answer to a request."""
        answers: list[Answer] = []
        ask(self._zookeeper, answers.append)
        self._run_until(lambda: bool(answers))
        (answer,) = answers
        if answer.outcome in (Outcome.NO_RIGHT, Outcome.REFUSED, Outcome.UNKNOWN):
            self._fail_for(answer)
        return answer

    def _run_until(self, is_over: Callable[[], bool]) -> None:
        deadline = time.monotonic() + ANSWER_S
        while not is_over():
            try:
                self._calls.get(timeout=max(0.0, deadline - time.monotonic()))()
            except Empty:
                self._fail_for(NO_ANSWER)

    def _fail_for(self, answer: Answer) -> NoReturn:
        fail(FAILED, f"{self._address.node}: {answer}")


@click.command()
@click.argument("words", metavar="[raise] HOST:PORT,.../ROOT [ID]", nargs=-1, required=True)
@click.option("--admin", "url", metavar="URL", help="Show also how many ids the broker with this admin port has left.")
@click.option(
    "--admin-token-file",
    metavar="FILE",
    type=click.Path(),
    envvar="OTTLA_ADMIN_TOKEN_FILE",
    help="File with the token of the port, if it needs one.  [env: OTTLA_ADMIN_TOKEN_FILE]",
)
@takes_format
def ids(words: tuple[str, ...], url: str | None, admin_token_file: str | None, format_name: str) -> None:
    """Show or raise the counter of producer ids in ZooKeeper.

    Prints which broker took the last block of ids, and the first id after it.

    `ottla ids raise zk:2181/ottla 12000` raises the counter, so that no broker gets an id below 12000: after ZooKeeper
    was wiped or restored. It never lowers the counter.

    Exit codes: 0 shown or raised, 1 there is no block, or the counter is higher already, 2 usage, or ZooKeeper does
    not answer.
    """
    raises = words[0] == "raise"
    if len(words) != (3 if raises else 1):
        raise click.UsageError("name one address, or: raise ADDRESS ID")
    try:
        address = parse_address(words[1 if raises else 0])
    except ValueError as error:
        fail(FAILED, error)
    if raises:
        _raise(address, words[2], output_for(format_name))
    else:
        _show(address, url, admin_token_file, output_for(format_name))


def _show(address: ZooKeeperAddress, url: str | None, token_file: str | None, out: Output) -> None:
    brokers = None
    if url is not None:
        from ottla.cli.ctl.asking import Port

        brokers = Port(url, token_file).get("/v1/producer-ids")
    nodes = _Nodes(address)
    block, _ = _read(address, nodes)
    if block is None:
        fail(NO_BLOCK, f"ZooKeeper {address}: {_describe_missing(address, nodes)}")
    out.line("summary", f"Producer ids below {block.last + 1} are taken.")
    row = {"broker": block.broker, "first_id": block.first, "last_id": block.last}
    out.table("last_block", *table_of([row]))
    if brokers is not None:
        out.table("brokers", *table_of(brokers["brokers"]))
        if brokers["problem"]:
            out.line("problem", brokers["problem"])
    out.close()


def _raise(address: ZooKeeperAddress, text: str, out: Output) -> None:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and 0 < int(text) <= LAST_ID - PRODUCER_ID_BLOCK):
        fail(FAILED, f"{text}: must be the first id that may be given, from 1 to {LAST_ID - PRODUCER_ID_BLOCK}")
    first = int(text)
    nodes = _Nodes(address)
    data = encode_block(Block(NO_BROKER, max(0, first - PRODUCER_ID_BLOCK), first - 1))
    is_written = False
    while not is_written:
        block, version = _read(address, nodes, repairs=True)
        if block is not None and block.last + 1 >= first:
            fail(NO_BLOCK, f"ZooKeeper {address}: the next id is {block.last + 1} already, and never lowered")
        is_written = _write(nodes, address.path, data, version).outcome is Outcome.OK
    out.line("summary", f"The next broker gets producer ids from {first} on.")
    out.close()


def _write(nodes: _Nodes, path: str, data: bytes, version: int | None) -> Answer:
    """Replace the node of this version, or create it if there was none."""
    if version is None:
        return nodes.wait(lambda zookeeper, give: zookeeper.create(path, data, give))
    return nodes.wait(lambda zookeeper, give: zookeeper.change(path, data, version, give))


def _read(address: ZooKeeperAddress, nodes: _Nodes, *, repairs: bool = False) -> tuple[Block | None, int | None]:
    """Return the block, None if there is none, and the version, None without a node. With `repairs` content that is no
    block counts as none."""
    answer = nodes.wait(lambda zookeeper, give: zookeeper.read(address.path, give))
    if answer.outcome is Outcome.NO_NODE:
        return None, None
    try:
        return parse_block(answer.data), answer.version
    except BadBlock as error:
        if repairs:
            return None, answer.version
        fail(NO_BLOCK, f"{address.node}: {error}. Replace it: ottla ids raise {address} ID")


def _describe_missing(address: ZooKeeperAddress, nodes: _Nodes) -> str:
    answer = nodes.wait(lambda zookeeper, give: zookeeper.list_children("/", give))
    names = ", ".join(answer.children) or "no nodes"
    return f"there is no block at {address.path}; the first broker that needs ids writes one. / has {names:.500}"
