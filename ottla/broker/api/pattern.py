"""Regular expressions of clients: RE2's syntax, matched in time that is linear in the text. pure

Python's `re` backtracks: a pattern such as `(a+)+b` would stop the broker for everybody. Here a pattern becomes a
nondeterministic automaton, whose sets of states are followed character by character and remembered per character and
per beginning, so that the next text costs one look-up a character, or one for all that it begins with.

    pattern = compile_pattern("orders-[0-9]+")    PatternError says what is wrong with it
    pattern.matches("orders-12")                  the whole text must match, as in `Matcher.matches` of RE2/J

Left out of RE2's syntax: Unicode scripts (`\\p{Greek}`; the general categories are there).
Source: RE2/J, with the flags that Kafka's `ListTransactions` uses (KIP-1152).
"""

from collections.abc import Callable
from functools import reduce
from operator import getitem
from typing import Final, NamedTuple

from ottla.broker.api.pattern_syntax import Node, PatternError, parse

__all__ = ["Pattern", "PatternError", "compile_pattern"]

MAX_INSTRUCTIONS: Final = 10_000
MAX_REMEMBERED: Final = 20_000
PREFIX_CHARS: Final = 16

Test = Callable[[str], bool]
"""Whether a character is in the class."""
Where = Callable[[str, str], bool]
"""(character before, character after) -> whether the place is right; "" at an end of the text."""


class _Instruction(NamedTuple):
    """Consume a character (`test`), or stand at a place (`where`), or neither; then go on at each of `to`."""

    test: Test | None
    where: Where | None
    to: tuple[int, ...]


_MATCH: Final = 0


class _Program:
    """The automaton. Instruction 0 is the match; others are added with the instruction that follows them known."""

    def __init__(self) -> None:
        self.instructions = [_Instruction(None, None, ())]
        self.looks_around = False

    def add(self, node: Node, then: int) -> int:
        """The first instruction of `node`, with `then` behind it."""
        kind = node.kind
        if kind == "char":
            return self._put(_Instruction(node.test, None, (then,)))
        if kind == "place":
            self.looks_around = True
            return self._put(_Instruction(None, node.where, (then,)))
        if kind == "sequence":
            for part in reversed(node.parts):
                then = self.add(part, then)
            return then
        if kind == "choice":
            return self._put(_Instruction(None, None, tuple(self.add(part, then) for part in node.parts)))
        return self._repeat(node, then)

    def _repeat(self, node: Node, then: int) -> int:
        (body,) = node.parts
        if node.most < 0:
            loop = self._put(_Instruction(None, None, ()))
            first = self.add(body, loop)
            self.instructions[loop] = _Instruction(None, None, (first, then))
            # With a least number the last of the copies is the loop's own.
            then = first if node.least > 0 else loop
            copies, optional = max(node.least - 1, 0), 0
        else:
            copies, optional = node.least, node.most - node.least
        end = then
        for _ in range(optional):
            then = self._put(_Instruction(None, None, (self.add(body, then), end)))
        for _ in range(copies):
            then = self.add(body, then)
        return then

    def _put(self, instruction: _Instruction) -> int:
        if len(self.instructions) >= MAX_INSTRUCTIONS:
            raise PatternError("the expression is too large")
        self.instructions.append(instruction)
        return len(self.instructions) - 1


class _Set(dict[str, "_Set"]):
    """A set of instructions: the set that follows each character, found when it is first asked for."""

    __slots__ = ("_pattern", "instructions")

    def __init__(self, pattern: "Pattern", instructions: frozenset[int]) -> None:
        self._pattern = pattern
        self.instructions = instructions

    def __missing__(self, char: str) -> "_Set":
        return self._pattern.follow(self, char)


class Pattern:
    """A compiled expression."""

    def __init__(self, program: _Program, start: int) -> None:
        self._instructions = program.instructions
        self._looks_around = program.looks_around
        self._start = frozenset((start,))
        self._first = _Set(self, self._reach(self._start, "", ""))
        self._sets = {self._first.instructions: self._first}
        self._begun: dict[str, _Set] = {}
        self._remembered = 0

    def matches(self, text: str) -> bool:
        """Whether all of `text` matches."""
        if self._looks_around:
            return self._matches_slowly(text)
        # Many ids begin alike, and `reduce` walks the sets without an instruction of Python.
        head = text[:PREFIX_CHARS]
        begun = self._begun.get(head)
        if begun is None:
            begun = reduce(getitem, head, self._first)
            if len(self._begun) < MAX_REMEMBERED:
                self._begun[head] = begun
        if not begun.instructions:
            return False
        return _MATCH in reduce(getitem, text[PREFIX_CHARS:], begun).instructions

    def follow(self, before: _Set, char: str) -> _Set:
        """The set behind `char`, which `before` remembers from now on."""
        if self._remembered >= MAX_REMEMBERED:
            for each in self._sets.values():
                each.clear()
            self._sets = {self._first.instructions: self._first}
            self._begun.clear()
            self._remembered = 0
        instructions = self._reach(self._consume(before.instructions, char), "", "")
        after = self._sets.get(instructions)
        if after is None:
            after = self._sets[instructions] = _Set(self, instructions)
        before[char] = after
        self._remembered += 1
        return after

    def _matches_slowly(self, text: str) -> bool:
        """What may follow depends on the characters around, so nothing is remembered."""
        states, before = self._start, ""
        for char in text:
            states = self._consume(self._reach(states, before, char), char)
            if not states:
                return False
            before = char
        return _MATCH in self._reach(states, before, "")

    def _consume(self, states: frozenset[int], char: str) -> frozenset[int]:
        found: set[int] = set()
        for state in states:
            test = self._instructions[state].test
            if test is not None and test(char):
                found.update(self._instructions[state].to)
        return frozenset(found)

    def _reach(self, states: frozenset[int], before: str, after: str) -> frozenset[int]:
        """The instructions that consume a character, or match, and can be reached without consuming one."""
        seen, stack, found = set(states), list(states), set()
        while stack:
            state = stack.pop()
            instruction = self._instructions[state]
            if instruction.test is not None or state == _MATCH:
                found.add(state)
            elif instruction.where is None or instruction.where(before, after):
                fresh = [each for each in instruction.to if each not in seen]
                seen.update(fresh)
                stack += fresh
        return frozenset(found)


def compile_pattern(text: str) -> Pattern:
    """The expression `text`, ready to match; PatternError if it is none."""
    program = _Program()
    return Pattern(program, program.add(parse(text), _MATCH))
