"""Functions with bugs that run in the place of functions about blocks of producer ids. free

The first parameter of each function is the function that it replaces; `plants.py` has the places.
"""

from types import SimpleNamespace
from typing import Any

from lab.planting import Original
from ottla.broker.cluster.controller import Controller
from ottla.broker.cluster.zookeeper_blocks import ZooKeeperBlocks
from ottla.broker.ports.zookeeper import Answer, Outcome
from ottla.protocol.errors import ErrorCode
from ottla.protocol.producer_id_node import Block, encode_block


def change_any_version(take: Original, blocks: ZooKeeperBlocks, block: range, version: int | None) -> None:
    """Replace the node whatever its version is."""
    take(blocks, block, None if version is None else -1)


def use_lost_answer(take: Original, blocks: Any, block: range, version: int | None) -> None:
    """Use a block although the answer to its change is lost."""

    def use(answer: Answer) -> None:
        vars(blocks).pop("_fail_for")
        if answer.outcome is Outcome.UNKNOWN:
            blocks._finish(block)
        else:
            blocks._fail_for(answer)

    blocks._fail_for = use
    take(blocks, block, version)


def accept_equal_block(take: Original, blocks: Any, block: range, version: int | None) -> None:
    """Use a block if the node has its bytes, as Kafka does: another broker with the same id writes the same bytes."""
    mine = encode_block(Block(blocks._waiting[0].node_id, block.start, block.stop - 1))

    def check(answer: Answer) -> None:
        vars(blocks).pop("_on_read")
        if answer.data == mine and block.start >= blocks._controller.next_producer_id:
            blocks._finish(block)
        else:
            blocks._on_read(answer)

    blocks._on_read = check
    take(blocks, block, version)


def take_block_below_log(on_read: Original, blocks: Any, answer: Answer) -> None:
    """Take the block after the node's, whatever the metadata log knows."""
    controller = blocks._controller
    if isinstance(controller, Controller):

        def log_producer_ids(node_id: int, block: range, applied: Any, durable: Any) -> bool:
            if block.start >= controller.next_producer_id:
                return controller.log_producer_ids(node_id, block, applied, durable)
            applied(block)
            durable(ErrorCode.NONE)
            return True

        blocks._controller = SimpleNamespace(next_producer_id=0, log_producer_ids=log_producer_ids)
    on_read(blocks, answer)


def give_ids_before_durable(log: Original, controller: Controller, node_id: int, block: range, *calls: Any) -> Any:
    """Use a block as soon as its record is appended."""
    applied, durable = calls
    accepted = log(controller, node_id, block, lambda applied_block: None, durable)
    if accepted:
        applied(block)
    return accepted
