"""Suggestions for a misspelt name. pure"""

from collections.abc import Collection
from difflib import get_close_matches


def nearest_name(name: str, names: Collection[str]) -> str | None:
    """Return the most similar of the names, whatever the case and the separators; None if none is similar."""
    by_letters = {_letters(each): each for each in names}
    near = get_close_matches(_letters(name), by_letters, n=1)
    return by_letters[near[0]] if near else None


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Return the end of an error text about an unknown name: the most similar name, else all names."""
    near = nearest_name(name, names)
    if near:
        return f"did you mean {near}?"
    return f"there is {', '.join(names)}" if names else "there is none"


def _letters(name: str) -> str:
    return name.lower().translate(str.maketrans("", "", "._-"))
