"""The same graphs on stock LangGraph: what each case looks like without Counterfoil."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from counterfoil.testing.tally import TallyFile
from tests.langgraph.shop import WHO, Shop, conf

Pay = Callable[..., int]
Build = Callable[[Pay], Any]
"""Makes a graph's builder around the one line that differs: how it pays."""


class Stock:
    """Runs a builder with LangGraph's own saver and a bare call to the provider."""

    def __init__(self, folder: Path) -> None:
        self.tally = TallyFile(folder / "stock-tally")

    def pay(self, order: str, amount: int = 10) -> int:
        return self.tally.accept("charge", None, {"order": order, "amount": amount})

    def compile(self, build: Build) -> Any:
        return build(self.pay).compile(checkpointer=InMemorySaver())

    def config(self) -> Any:
        return conf()

    @property
    def count(self) -> int:
        return self.tally.count()


class Ours:
    """Runs the same builder with Counterfoil, and the effect in place of the bare call."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop

    @staticmethod
    def pay(order: str, amount: int = 10) -> int:
        from counterfoil.langgraph import perform
        from tests.langgraph.shop import charge

        return int(perform(charge, order=order, amount=amount).value["number"])

    def compile(self, build: Build) -> Any:
        return self.shop.cf.compile(build(self.pay))

    def config(self) -> Any:
        return self.shop.cf.config(**WHO)

    @property
    def count(self) -> int:
        return self.shop.count
