"""Changes to a piece of source: one expression or one statement, in place; the rest of the file does not change.

Changes without an observable effect are left out: log lines, texts, annotations, portion sizes, charged work, which
is an estimate, and whether `zip` checks that lists are as long as each other.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>"}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOGGED = ("log.", "_log.", "logging.", "warnings.")
UNSEEN = ("__slots__", "__all__", "charge", "spend", "_US", "cost_us", "AT_ONCE", "MOST_", "_BYTES", "TypeVar")
OF_TYPES = ("annotation", "returns", "decorator_list", "bases", "type_params")

Change = tuple[str, ast.AST, str]
"""(operator, replaced text, replacement)."""


class Mutant(NamedTuple):
    """A change of the text `before`, at byte `start` of the file, to `after`."""

    path: str
    line: int
    operator: str
    start: int
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        end = self.start + len(self.before.encode())
        assert source[self.start : end].decode() == self.before
        return source[: self.start] + self.after.encode() + source[end:]

    def is_python(self, source: bytes) -> bool:
        try:
            ast.parse(self.apply(source))
        except SyntaxError:
            return False
        return True


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a module, in the order of the file. A few of them may be invalid Python."""
    return sorted(set(_Module(path, source).mutants()), key=lambda one: (one.start, one.operator, one.after))


class _Module:
    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        for node in _changeable(ast.parse(self._source)):
            for operator, part, after in (*self._of_expression(node), *self._of_statement(node)):
                start, before = self._place(part), self._text(part)
                yield Mutant(self._path, part.lineno, operator, start, before, after)

    def _place(self, node: ast.AST) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _text(self, node: ast.AST) -> str:
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        return self._source[self._place(node) : end].decode()

    def _between(self, left: ast.AST, word: str, right: ast.AST) -> str:
        return f"({self._text(left)}) {word} ({self._text(right)})"

    def _of_expression(self, node: ast.AST) -> Iterator[Change]:
        text = self._text
        match node:
            case ast.Compare(ops=[op]):
                yield "comparison", node, self._between(node.left, COMPARISONS[type(op)], node.comparators[0])
            case ast.BoolOp(values=[left, right]):
                word = "or" if isinstance(node.op, ast.And) else "and"
                yield "boolean", node, self._between(left, word, right)
                yield "boolean", node, f"({text(left)})"
                yield "boolean", node, f"({text(right)})"
            case ast.BoolOp(values=values):
                for at in range(len(values)):
                    word = " and " if isinstance(node.op, ast.And) else " or "
                    yield "boolean", node, word.join(f"({text(one)})" for one in values if one is not values[at])
            case ast.UnaryOp(op=ast.Not()):
                yield "boolean", node, f"({text(node.operand)})"
            case ast.BinOp(op=op) if type(op) in ARITHMETIC:
                yield "arithmetic", node, self._between(node.left, ARITHMETIC[type(op)], node.right)
            case ast.Constant(value=bool()):
                yield "constant", node, str(not node.value)
            case ast.Constant(value=int()):
                yield "constant", node, str(node.value + 1)
            case ast.Call(func=ast.Name(id=name)) if name in CALLED:
                yield "call", node.func, CALLED[name]
            case ast.IfExp():
                yield "condition", node.test, f"not ({text(node.test)})"

    def _of_statement(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.If() | ast.While():
                yield "condition", node.test, f"not ({self._text(node.test)})"
                yield "condition", node.test, "False"
            case ast.Return(value=ast.Constant(value=None)):
                return
            case ast.Return(value=ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not())):
                yield "return", node.value, f"not ({self._text(node.value)})"
            case ast.Return(value=ast.expr()):
                yield "return", node.value, "None"
            case (
                ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break()
            ):
                yield "statement", node, "pass"
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
                yield "statement", node, "pass"


def _changeable(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name not in OF_TYPES:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_unseen(child):
                    yield child
                    yield from _changeable(child)


def _is_unseen(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return _names(target, UNSEEN)
        case ast.Expr(value=ast.Call(func=called)) | ast.Call(func=called):
            return ast.unparse(called).startswith(LOGGED) or _names(called, UNSEEN)
        case ast.BinOp() | ast.Expr(value=ast.Yield()):
            return _names(node, ("_US", "cost_us"))
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.keyword(arg="strict"):
            return True
    return False


def _names(node: ast.AST, words: tuple[str, ...]) -> bool:
    text = ast.unparse(node)
    return any(word in text for word in words)
