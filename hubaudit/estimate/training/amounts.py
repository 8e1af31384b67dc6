"""Amounts of memory as sums of products, so that the formula that is shown is the one that is computed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hubaudit.estimate.component import Input

Product = tuple[str, ...]


class Amount:
    """Bytes as a sum of ``coefficient × name × name …``; the names are inputs of a formula.

    >>> (Amount.of(2, "tokens", "hidden_size") + Amount.of(4, "tokens")).formula()
    'tokens * (2 * hidden_size + 4)'
    """

    __slots__ = ("_terms",)

    def __init__(self, terms: Mapping[Product, int] | None = None) -> None:
        self._terms: Counter[Product] = Counter(terms or {})

    @classmethod
    def of(cls, coefficient: int, *names: str) -> Amount:
        """One product."""
        return cls({names: coefficient})

    def __add__(self, other: Amount) -> Amount:
        terms = Counter(self._terms)
        for product, coefficient in other._terms.items():
            terms[product] += coefficient
        return Amount(terms)

    def __sub__(self, other: Amount) -> Amount:
        return self + other.times(-1)

    def times(self, number: int, *names: str) -> Amount:
        """The amount ``number`` times, and once for each of what ``names`` counts."""
        return Amount({(*names, *product): coefficient * number for product, coefficient in self._terms.items()})

    def renamed(self, old: str, new: str, unless: frozenset[str]) -> Amount:
        """The amount with ``new`` for ``old`` in every product that has none of ``unless``."""
        made: Counter[Product] = Counter()
        for product, coefficient in self._terms.items():
            stays = not unless.isdisjoint(product)
            made[product if stays else tuple(new if name == old else name for name in product)] += coefficient
        return Amount(made)

    def value(self, inputs: Mapping[str, Input]) -> int:
        """Bytes."""
        total = 0
        for product, coefficient in self._terms.items():
            for name in product:
                coefficient *= inputs[name].value  # noqa: PLW2901 - a product
            total += coefficient
        return total

    def formula(self) -> str:
        """An integer expression, with what all terms of a group share written once."""
        more = {product: coefficient for product, coefficient in self._terms.items() if coefficient > 0}
        less = {product: -coefficient for product, coefficient in self._terms.items() if coefficient < 0}
        return (_grouped(more) or "0") + (f" - ({_grouped(less)})" if less else "")


def _grouped(terms: Mapping[Product, int]) -> str:
    """Terms that start with the same name in one bracket after it."""
    heads: dict[str, dict[Product, int]] = {}
    plain = 0
    for product, coefficient in terms.items():
        if product:
            heads.setdefault(product[0], {})[product[1:]] = coefficient
        else:
            plain += coefficient
    parts = [_headed(head, rest) for head, rest in heads.items()]
    if plain:
        parts.append(str(plain))
    return " + ".join(parts)


def _headed(head: str, rest: Mapping[Product, int]) -> str:
    if len(rest) == 1:
        ((product, coefficient),) = rest.items()
        factors = " * ".join((head, *product))
        return factors if coefficient == 1 else f"{coefficient} * {factors}"
    return f"{head} * ({_grouped(rest)})"


def total(amounts: Iterable[Amount]) -> Amount:
    """The sum."""
    made = Amount()
    for amount in amounts:
        made += amount
    return made


def largest(amounts: Iterable[Amount], inputs: Mapping[str, Input]) -> Amount:
    """The one with the most bytes; nothing where there is none."""
    return max(amounts, key=lambda amount: amount.value(inputs), default=Amount())
