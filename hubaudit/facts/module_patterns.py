r"""Module-name patterns out of quantization configs, matched in time linear in the name: a repository's regex is never compiled by ``re``.

The dialect is the part of Python's that such patterns use: literals, ``.``, ``\.`` and other escaped signs, ``\d \w \s``, classes, groups,
``|``, the repeats ``* + ?`` (lazy or not) and ``{m,n}``, and the anchors ``^`` and ``$`` at the ends. Whatever else is left alone, as not understood.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

#: Patterns are some dozen characters long; these keep a hostile one from costing more than it does to read.
_MAX_PATTERN = 1000
_MAX_STATES = 1000
_MAX_DEPTH = 30
_CLASSES = {
    "d": "0123456789",
    "s": " \t\n\r\f\v",
    "w": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
}
_SPECIAL = "\\.[](){}*+?|^$"


class _NotUnderstoodError(Exception):
    """The pattern uses more than the dialect above."""


@dataclass(slots=True)
class _State:
    """A state of the automaton: one step on a character that ``accepts`` holds (all but those where ``negated``), and free steps."""

    accepts: frozenset[str] | None = None
    negated: bool = False
    step: int | None = None
    free: list[int] = field(default_factory=list)


@lru_cache(maxsize=4096)
def matches_regex(pattern: str, name: str) -> bool | None:
    """Whether ``re.match(pattern, name)`` would find something; ``None`` where the pattern is not understood."""
    automaton = _compiled(pattern)
    return None if automaton is None else automaton.matches(name)


def matches_target(target: str, module: str) -> bool | None:
    """Whether a compressed-tensors target names the module: ``re:`` and a regex anchored at its start, else the whole name.

    ``None`` where the regex is not understood. A class name ("Linear") matches no module here.
    (compressed-tensors ac8e2ba8, ``match_name`` in utils/match.py)
    """
    return matches_regex(target[3:], module) if target.startswith("re:") else target == module


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> _Automaton | None:
    if len(pattern) > _MAX_PATTERN:
        return None
    try:
        return _Automaton(pattern)
    except _NotUnderstoodError:
        return None


class _Automaton:
    """A pattern as a non-deterministic automaton, built by recursive descent; all its states advance side by side over a name."""

    def __init__(self, pattern: str) -> None:
        self._anchored = pattern.endswith("$") and not pattern.endswith("\\$")
        self._text = pattern.removeprefix("^")
        self._text = self._text[:-1] if self._anchored else self._text
        self._at = 0
        self._branches = 1
        self._states: list[_State] = []
        self._start, self._end = self._alternatives(0)
        anchors_a_branch = self._branches > 1 and len(self._text) != len(pattern)
        if self._at != len(self._text) or anchors_a_branch:
            raise _NotUnderstoodError

    def matches(self, name: str) -> bool:
        """Whether the pattern matches from the name's first character (to its last, where the pattern ends in ``$``)."""
        current = self._closure({self._start})
        for character in name:
            if self._end in current and not self._anchored:
                return True
            current = self._closure(self._after(current, character))
            if not current:
                return False
        return self._end in current

    def _after(self, current: set[int], character: str) -> set[int]:
        states = (self._states[index] for index in current)
        return {
            state.step
            for state in states
            if state.step is not None and (state.accepts is None or (character in state.accepts) is not state.negated)
        }

    def _closure(self, reached: set[int]) -> set[int]:
        waiting = list(reached)
        while waiting:
            for index in self._states[waiting.pop()].free:
                if index not in reached:
                    reached.add(index)
                    waiting.append(index)
        return reached

    # --- building ------------------------------------------------------------------------------------------------------

    def _new(self) -> int:
        if len(self._states) >= _MAX_STATES:
            raise _NotUnderstoodError
        self._states.append(_State())
        return len(self._states) - 1

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise _NotUnderstoodError
        self._at += 1
        return character

    def _alternatives(self, depth: int) -> tuple[int, int]:
        if depth > _MAX_DEPTH:
            raise _NotUnderstoodError
        start, end = self._new(), self._new()
        while True:
            first, last = self._sequence(depth)
            self._states[start].free.append(first)
            self._states[last].free.append(end)
            if self._peek() != "|":
                return start, end
            self._take()
            self._branches += depth == 0

    def _sequence(self, depth: int) -> tuple[int, int]:
        start = end = self._new()
        while self._peek() not in ("", "|", ")"):
            begin = self._at
            first, last = self._repeated(*self._atom(depth), begin, depth)
            self._states[end].free.append(first)
            end = last
        return start, end

    def _atom(self, depth: int) -> tuple[int, int]:
        character = self._take()
        if character == "(":
            return self._group(depth)
        if character == "[":
            return self._single(*self._class())
        if character == "\\":
            return self._single(self._escaped(), negated=False)
        if character == ".":
            return self._single(None, negated=False)
        if character in _SPECIAL:
            raise _NotUnderstoodError
        return self._single(frozenset(character), negated=False)

    def _group(self, depth: int) -> tuple[int, int]:
        if self._text.startswith("?:", self._at):
            self._at += 2
        made = self._alternatives(depth + 1)
        if self._take() != ")":
            raise _NotUnderstoodError
        return made

    def _single(self, accepts: frozenset[str] | None, negated: bool) -> tuple[int, int]:
        start, end = self._new(), self._new()
        self._states[start].accepts, self._states[start].negated, self._states[start].step = accepts, negated, end
        return start, end

    def _escaped(self) -> frozenset[str]:
        character = self._take()
        if character in _CLASSES:
            return frozenset(_CLASSES[character])
        if character.isalnum():
            raise _NotUnderstoodError
        return frozenset(character)

    def _class(self) -> tuple[frozenset[str], bool]:
        negated = self._peek() == "^"
        if negated:
            self._take()
        if self._peek() == "]":
            raise _NotUnderstoodError
        found: set[str] = set()
        while (character := self._take()) != "]":
            found |= self._escaped() if character == "\\" else self._range(character)
        return frozenset(found), negated

    def _range(self, first: str) -> frozenset[str]:
        """A sign of a class, or the signs from it to the one behind a hyphen."""
        if first in "[-":
            raise _NotUnderstoodError
        if self._peek() != "-":
            return frozenset(first)
        self._take()
        last = self._take()
        if last in "]\\" or not first <= last <= "~":
            raise _NotUnderstoodError
        return frozenset(chr(code) for code in range(ord(first), ord(last) + 1))

    def _repeated(self, first: int, last: int, begin: int, depth: int) -> tuple[int, int]:
        """The atom just read, with the repeat that follows it. A counted repeat builds the atom anew for every round."""
        sign = self._peek()
        if sign in ("*", "+", "?"):
            self._take()
            self._laziness()
            if sign in ("*", "+"):
                self._states[last].free.append(first)
            if sign in ("*", "?"):
                self._states[first].free.append(last)
            return self._wrapped(first, last)
        return self._counted(first, last, begin, depth) if sign == "{" else (first, last)

    def _wrapped(self, first: int, last: int) -> tuple[int, int]:
        """Fresh ends around a repeated atom, so that its loop is not entered from what stands beside it."""
        start, end = self._new(), self._new()
        self._states[start].free.append(first)
        self._states[last].free.append(end)
        return start, end

    def _counted(self, first: int, last: int, begin: int, depth: int) -> tuple[int, int]:
        close = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : close].partition(",")
        if close < 0 or not low.isdecimal() or (comma and not high.isdecimal()):
            raise _NotUnderstoodError
        least, most = int(low), int(high if comma else low)
        if not 1 <= least <= most <= _MAX_STATES:
            raise _NotUnderstoodError
        after, ends = close + 1, [last]
        for _ in range(most - 1):
            self._at = begin
            again, last_again = self._atom(depth)
            self._states[ends[-1]].free.append(again)
            ends.append(last_again)
        for skipped in ends[least - 1 : -1]:
            self._states[skipped].free.append(ends[-1])
        self._at = after
        self._laziness()
        return first, ends[-1]

    def _laziness(self) -> None:
        """A trailing ``?`` changes how much a match takes, not whether there is one; a second repeat sign is not understood."""
        if self._peek() == "?":
            self._take()
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise _NotUnderstoodError
