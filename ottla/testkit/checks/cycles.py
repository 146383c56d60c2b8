"""Cycles of dependency between committed operations (Adya's G0 and G1c, as Elle finds them). pure

Edges: `wr` from the writer of a value to its reader, `process` between operations of one client, `realtime` from an
operation to those that began after its end, `ww` in the order of a log. A cycle that needs no `ww` is
G1c. Kafka's transactions may interleave in their logs, so cycles through `ww` (G0) are legal there, and are reported
only on request.
"""

from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter

from ottla.testkit.checks.logs import VISIBLE, Logs
from ottla.testkit.checks.operations import COMMITTED, OK, Anomaly, FullHistory, Operation

Graph = dict[str, set[str]]


class _Node:
    """A committed transaction, or an operation outside of one."""

    __slots__ = ("began", "ended", "name", "operations")

    def __init__(self, name: str, operations: list[Operation]) -> None:
        self.name = name
        self.operations = operations
        self.began = min(operation.began for operation in operations)
        self.ended = max(operation.ended for operation in operations)


def check_cycles(story: FullHistory, logs: Logs, report_legal: bool = False) -> Iterator[Anomaly]:
    """Yield an anomaly for each strongly connected component of the graph."""
    nodes = _nodes(story)
    graph = _order_edges(nodes)
    writer_of = {
        value: node.name for node in nodes for op in node.operations if op.f == "send" for _key, value in op.sent
    }  # fmt: skip
    for node in nodes:
        for poll in node.operations:
            if poll.f != "poll" or not poll.invoke["committed"]:
                continue
            for _poll, _key, _start, _behind, records in poll.result["mops"]:
                for _offset, value in records:
                    writer = writer_of.get(value)
                    if writer is not None and writer != node.name:
                        graph[writer].add(node.name)
    for part in _components(graph):
        yield Anomaly("G1c", " -> ".join(part), frozenset(part))
    if report_legal:
        for key in logs.rows:
            names = [writer_of.get(value) for _offset, value, fate in logs.rows[key] if fate in VISIBLE]
            for before, after in pairwise(names):
                if before is not None and after is not None and before != after:
                    graph[before].add(after)
        for part in _components(graph):
            yield Anomaly("G0", " -> ".join(part), frozenset(part))


def _nodes(story: FullHistory) -> list[_Node]:
    nodes = []
    for transaction in story.transactions.values():
        if transaction.outcome == COMMITTED:
            done = [operation for operation in transaction.operations if operation.status == OK]
            nodes.append(_Node(transaction.name, done))
    for operation in story.operations:
        if operation.txn is None and operation.status == OK and operation.f in ("send", "poll"):
            nodes.append(_Node(f"{operation.proc}#{operation.op}", [operation]))
    return nodes


def _order_edges(nodes: list[_Node]) -> Graph:
    """Return the edges from each operation to later ones, without implied edges; also those of one client."""
    graph: Graph = {node.name: set() for node in nodes}
    moments = [(node.began, 0, node) for node in nodes] + [(node.ended, 1, node) for node in nodes]
    moments.sort(key=itemgetter(0, 1))
    frontier: list[_Node] = []
    before: dict[str, list[_Node]] = {}
    for _at, is_end, node in moments:
        if not is_end:
            before[node.name] = list(frontier)
            for earlier in frontier:
                graph[earlier.name].add(node.name)
        else:
            gone = {earlier.name for earlier in before[node.name]}
            frontier = [each for each in frontier if each.name not in gone] + [node]
    return graph


def _components(graph: Graph) -> Iterator[list[str]]:
    """Yield the strongly connected components of more than one node (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(sorted(graph[successor]))))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part: list[str] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    if len(part) > 1:
                        yield part[::-1]
