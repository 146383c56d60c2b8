"""The syntax of RE2: from an expression to a tree. pure

Source: `Parser` of RE2/J with the flags of `Pattern.compile` (Perl's syntax and classes, one line unless `(?m)`).
"""

from collections.abc import Callable
from typing import Final, NamedTuple
from unicodedata import category

MAX_LENGTH: Final = 10_000
MAX_DEPTH: Final = 100
MAX_REPEAT: Final = 1000

Test = Callable[[str], bool]
Where = Callable[[str, str], bool]


class PatternError(ValueError):
    """The text is no regular expression; the message says why."""


class Node(NamedTuple):
    """A part of an expression; `kind` is char, place, sequence, choice or repeat (`most` -1: without end)."""

    kind: str
    test: Test | None = None
    where: Where | None = None
    parts: "tuple[Node, ...]" = ()
    least: int = 0
    most: int = 0


def _word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_") and char != ""


def _begin_text(before: str, after: str) -> bool:
    return not before


def _end_text(before: str, after: str) -> bool:
    return not after


def _begin_line(before: str, after: str) -> bool:
    return before in ("", "\n")


def _end_line(before: str, after: str) -> bool:
    return after in ("", "\n")


def _boundary(before: str, after: str) -> bool:
    return _word(before) != _word(after)


def _no_boundary(before: str, after: str) -> bool:
    return _word(before) == _word(after)


def _anything(char: str) -> bool:
    return True


def _not(test: Test) -> Test:
    return lambda char: not test(char)


def _in(chars: str) -> Test:
    kept = frozenset(chars)
    return lambda char: char in kept


def _span(low: str, high: str) -> Test:
    return lambda char: low <= char <= high


# Characters that have more than two cases, as far as lower, upper and title case do not lead to one another.
_ORBITS: Final = (
    "Kk\u212a Ss\u017f \xc5\xe5\u212b \xb5\u039c\u03bc \xdf\u1e9e \u0345\u0399\u03b9\u1fbe \u0392\u03b2\u03d0 "
    "\u0395\u03b5\u03f5 \u0398\u03b8\u03d1\u03f4 \u039a\u03ba\u03f0 \u03a0\u03c0\u03d6 \u03a1\u03c1\u03f1 "
    "\u03a3\u03c2\u03c3 \u03a6\u03c6\u03d5 \u03a9\u03c9\u2126 \u0412\u0432\u1c80 \u0414\u0434\u1c81 \u041e\u043e\u1c82 "
    "\u0421\u0441\u1c83 \u0422\u0442\u1c84\u1c85 \u042a\u044a\u1c86 \u0462\u0463\u1c87 \u1c88\ua64a\ua64b "
    "\u1e60\u1e61\u1e9b"
)
_ORBIT_OF: Final = {char: orbit for orbit in _ORBITS.split() for char in orbit}


def _folded(test: Test) -> Test:
    def in_any_case(char: str) -> bool:
        cases = (char, char.lower(), char.upper(), char.title(), *_ORBIT_OF.get(char, ""))
        return any(test(case) for case in cases if len(case) == 1)

    return in_any_case


_DIGITS: Final = "0123456789"
_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_UPPER: Final = _LOWER.upper()
_GRAPH: Final = "".join(map(chr, range(0x21, 0x7F)))
_PUNCTUATION: Final = "".join(char for char in _GRAPH if not char.isalnum())
_PERL: Final[dict[str, Test]] = {"d": _in(_DIGITS), "s": _in("\t\n\f\r "), "w": _word}
_POSIX: Final[dict[str, Test]] = {
    "alnum": _in(_LOWER + _UPPER + _DIGITS),
    "alpha": _in(_LOWER + _UPPER),
    "ascii": str.isascii,
    "blank": _in("\t "),
    "cntrl": lambda char: char < " " or char == "\x7f",
    "digit": _in(_DIGITS),
    "graph": _in(_GRAPH),
    "lower": _in(_LOWER),
    "print": _in(_GRAPH + " "),
    "punct": _in(_PUNCTUATION),
    "space": _in("\t\n\v\f\r "),
    "upper": _in(_UPPER),
    "word": _word,
    "xdigit": _in(_DIGITS + "abcdefABCDEF"),
}
_SUBCATEGORIES: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_CATEGORIES: Final = frozenset(major + minor for major, minors in _SUBCATEGORIES.items() for minor in ("", *minors))
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PLACES: Final[dict[str, Where]] = {"A": _begin_text, "z": _end_text, "b": _boundary, "B": _no_boundary}
_EMPTY: Final = Node("sequence")


def parse(text: str) -> Node:
    """The tree of the expression `text`; PatternError if it is none."""
    if len(text) > MAX_LENGTH:
        raise PatternError(f"an expression of more than {MAX_LENGTH} characters")
    parser = _Parser(text)
    node = parser.choice(0)
    if parser.left:
        raise PatternError("unexpected )")
    return node


class _Parser:
    """Recursive descent over `text`. `flags` are those in force here: a group gives them back where it ends."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.flags = frozenset[str]()
        self.names: set[str] = set()

    @property
    def left(self) -> bool:
        return self.at < len(self.text)

    def choice(self, depth: int) -> Node:
        """Up to the end or a closing parenthesis."""
        if depth > MAX_DEPTH:
            raise PatternError(f"parentheses nested more than {MAX_DEPTH} times")
        options, parts, repeatable = [], list[Node](), False
        while self.left and self.text[self.at] != ")":
            char = self.text[self.at]
            if char == "|":
                self.at += 1
                options.append(Node("sequence", parts=tuple(parts)))
                parts, repeatable = [], False
                continue
            times = self._times()
            if times is None:
                part = self._atom(depth)
                parts += part
                repeatable = bool(part)
                continue
            if not repeatable:
                raise PatternError(f"nothing to repeat before {char}, or repeated twice")
            parts[-1] = Node("repeat", parts=(parts[-1],), least=times[0], most=times[1])
            repeatable = False
        options.append(Node("sequence", parts=tuple(parts)))
        return options[0] if len(options) == 1 else Node("choice", parts=tuple(options))

    def _times(self) -> tuple[int, int] | None:
        """A repetition operator with the ? of an ungreedy one; None, and nothing is taken, if none stands here."""
        char = self.text[self.at]
        times = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}.get(char)
        end = self.at + 1
        if char == "{":
            end = self.text.find("}", self.at) + 1
            times = _counts(self.text[self.at + 1 : end - 1]) if end else None
        if times is None:
            return None
        self.at = end
        if self.text[end : end + 1] == "?":
            self.at += 1
        return times

    def _atom(self, depth: int) -> list[Node]:
        """What a repetition applies to is the last of these; setting flags is nothing."""
        char = self.text[self.at]
        if char == "(":
            return self._group(depth)
        if char == "[":
            return [Node("char", test=self._bracket())]  # folded before it is negated
        self.at += 1
        if char == ".":
            return [Node("char", test=_anything if "s" in self.flags else _not(_in("\n")))]
        if char == "^":
            return [Node("place", where=_begin_line if "m" in self.flags else _begin_text)]
        if char == "$":
            return [Node("place", where=_end_line if "m" in self.flags else _end_text)]
        if char != "\\":
            return [self._char(_in(char))]
        escaped = self.text[self.at : self.at + 1]
        if escaped in _PLACES:
            self.at += 1
            return [Node("place", where=_PLACES[escaped])]
        if escaped == "Q":
            return self._quoted()
        return [self._char(self._class_escape() or _in(self._escape()))]

    def _char(self, test: Test) -> Node:
        return Node("char", test=_folded(test) if "i" in self.flags else test)

    def _quoted(self) -> list[Node]:
        start = self.at + 1
        end = self.text.find("\\E", start)
        literal = self.text[start:] if end < 0 else self.text[start:end]
        self.at = len(self.text) if end < 0 else end + 2
        return [self._char(_in(char)) for char in literal]

    def _group(self, depth: int) -> list[Node]:
        outer = self.flags
        self.at += 1
        if self.text[self.at : self.at + 1] == "?":
            self.at += 1
            if self.text.startswith(("P<", "<"), self.at):
                self._name()
            elif self._sets_flags():
                return []  # to the end of the group around
        node = self.choice(depth + 1)
        if not self.left:
            raise PatternError("missing )")
        self.at += 1
        self.flags = outer
        return [node]

    def _name(self) -> None:
        start = self.text.index("<", self.at) + 1
        end = self.text.find(">", start)
        name = self.text[start:end] if end >= 0 else ""
        if not name or not all(map(_word, name)) or name in self.names:
            raise PatternError("bad or repeated name of a group")
        self.names.add(name)
        self.at = end + 1

    def _sets_flags(self) -> bool:
        """`i-s)` or `i-s:`; True for the first."""
        flags, negative, seen = set(self.flags), False, False
        while self.left:
            char = self.text[self.at]
            self.at += 1
            if char in "imsU":
                seen = True
                (flags.discard if negative else flags.add)(char)
            elif char == "-" and not negative:
                negative, seen = True, False
            elif char in ":)" and (seen or not negative):
                self.flags = frozenset(flags)
                return char == ")"
            else:
                break
        raise PatternError("bad flags of a group")

    def _bracket(self) -> Test:
        """`[...]`"""
        self.at += 1
        negative = self.text[self.at : self.at + 1] == "^"
        self.at += negative
        tests: list[Test] = []
        while True:
            if not self.left:
                raise PatternError("missing ]")
            if self.text[self.at] == "]" and tests:
                self.at += 1
                break
            tests.append(self._posix() or self._class_escape(inside=True) or self._range())
        folded = [_folded(test) for test in tests] if "i" in self.flags else tests
        union = folded[0] if len(folded) == 1 else lambda char: any(test(char) for test in folded)
        return _not(union) if negative else union

    def _posix(self) -> Test | None:
        if not self.text.startswith("[:", self.at):
            return None
        end = self.text.find(":]", self.at + 2)
        if end < 0:
            return None
        name = self.text[self.at + 2 : end]
        test = _POSIX.get(name.removeprefix("^"))
        if test is None:
            raise PatternError(f"no class [:{name}:]")
        self.at = end + 2
        return _not(test) if name.startswith("^") else test

    def _range(self) -> Test:
        low = self._bracket_char()
        if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
            self.at += 1
            high = self._bracket_char()
            if high < low:
                raise PatternError(f"range {low}-{high}")
            return _span(low, high)
        return _in(low)

    def _bracket_char(self) -> str:
        if not self.left:
            raise PatternError("missing ]")
        char = self.text[self.at]
        self.at += 1
        return self._escape() if char == "\\" else char

    def _class_escape(self, inside: bool = False) -> Test | None:
        """`d`, `W`, `pL` or `P{Lu}` behind a backslash, which stands here still when `inside` brackets."""
        start = self.at
        if inside:
            if self.text[start] != "\\":
                return None
            start += 1
        char = self.text[start : start + 1]
        test = _PERL.get(char.lower()) if char else None
        if test is not None:
            self.at = start + 1
        elif char in ("p", "P"):
            test = self._category(start + 1)
        else:
            return None
        return _not(test) if char.isupper() else test

    def _category(self, start: int) -> Test:
        name, self.at = self.text[start : start + 1], start + 1
        if name == "{":
            end = self.text.find("}", start)
            name, self.at = self.text[start + 1 : end] if end >= 0 else "", end + 1
        negative, name = name.startswith("^"), name.removeprefix("^")
        test = _anything if name == "Any" else lambda char: category(char).startswith(name)
        if name != "Any" and name not in _CATEGORIES:
            raise PatternError(f"no category {name}")
        return _not(test) if negative else test

    def _escape(self) -> str:
        """The character behind a backslash."""
        char = self.text[self.at : self.at + 1]
        self.at += 1
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hexadecimal()
        if char == "0" or (char and char in "1234567" and self.text[self.at : self.at + 1] in tuple("01234567")):
            digits = char
            while len(digits) < 3 and self.text[self.at : self.at + 1] in tuple("01234567"):
                digits += self.text[self.at]
                self.at += 1
            return chr(int(digits, 8))
        if char and not (char.isascii() and char.isalnum()):
            return char
        raise PatternError(f"bad escape \\{char}")

    def _hexadecimal(self) -> str:
        if self.text.startswith("{", self.at):
            end = self.text.find("}", self.at)
            digits, self.at = self.text[self.at + 1 : end] if end >= 0 else "", end + 1
        else:
            digits = self.text[self.at : self.at + 2]
            self.at += 2
            if len(digits) < 2:
                raise PatternError("bad escape \\x")
        if not digits or len(digits) > 8 or not all(_POSIX["xdigit"](char) for char in digits):
            raise PatternError("bad escape \\x")
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise PatternError("bad escape \\x")
        return chr(code)


def _counts(text: str) -> tuple[int, int] | None:
    """`n`, `n,` or `n,m`; None if it is text like any other."""
    least, comma, most = text.partition(",")
    if not (least.isascii() and least.isdigit()) or (most and not (most.isascii() and most.isdigit())):
        return None
    if any(len(count) > 1 and count.startswith("0") for count in (least, most)):
        return None
    if len(least) > 4 or len(most) > 4:
        raise PatternError("repeated too often")
    low = int(least)
    high = low if not comma else int(most) if most else -1
    if max(low, high) > MAX_REPEAT or 0 <= high < low:
        raise PatternError(f"repeated {text} times")
    return low, high
