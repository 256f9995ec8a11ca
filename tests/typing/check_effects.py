"""What a type checker makes of effects and receipts. mypy reads this file; a test runs mypy on it."""

from typing import Any, TypedDict, assert_type

from counterfoil import (
    Absent,
    Answered,
    AsyncCounterfoil,
    CannotTell,
    Counterfoil,
    Effect,
    EffectCall,
    Found,
    Provider,
    Receipt,
    Statement,
    Verification,
    effect,
)


class Ticket(TypedDict):
    id: int
    title: str


def find_ticket(call: EffectCall, *, title: str) -> Found | Absent | CannotTell:
    return Found({"id": 1, "title": title}) if call.request_id else Absent()


@effect("typing.ticket", key="{request_id}/ticket", provider=Provider(lookup=find_ticket, lookup_lag="0s"))
def create_ticket(call: EffectCall, *, title: str) -> Ticket:
    assert_type(call.provider_key, str)
    assert_type(call.resource(dict), dict[Any, Any])
    return {"id": 1, "title": title}


@effect("typing.invite", key="{request_id}/invite")
async def invite(_call: EffectCall, *, email: str) -> list[str]:
    return [email]


@effect("typing.book", key="{request_id}/book", provider=Provider.one_statement())
def book(_call: EffectCall, *, title: str) -> Statement[Ticket]:
    return Statement("insert into ticket (title) values (:title) returning id, title", title=title)


@effect("typing.answered", key="{request_id}/answered")
def answered(_call: EffectCall, *, title: str) -> Answered[Ticket]:
    return Answered({"id": 1, "title": title}, {"status": 201})


@effect("typing.aanswered", key="{request_id}/aanswered")
async def aanswered(_call: EffectCall, *, title: str) -> Answered[Ticket]:
    return Answered({"id": 1, "title": title})


assert_type(answered, Effect[Ticket])
assert_type(aanswered, Effect[Ticket])
assert_type(create_ticket, Effect[Ticket])
assert_type(book, Effect[Ticket])
assert_type(invite, Effect[list[str]])


def blocking(cf: Counterfoil) -> None:
    receipt = cf.perform(create_ticket, tenant="team-a", request_id="r-1", title="Printer offline")
    assert_type(receipt, Receipt[Ticket])
    assert_type(receipt.value, Ticket)
    assert_type(receipt.value["id"], int)
    assert_type(cf.verify(create_ticket, tenant="team-a", title="x"), Verification)
    assert_type(cf.join(object()).perform(create_ticket, tenant="team-a", title="x"), Receipt[Ticket])
    with cf as same:
        assert_type(same, Counterfoil)


async def awaiting(cf: AsyncCounterfoil) -> None:
    assert_type(await cf.perform(create_ticket, tenant="team-a", title="x"), Receipt[Ticket])
    assert_type(await cf.perform(invite, tenant="team-a", email="a@example.com"), Receipt[list[str]])
    assert_type(await cf.join(object()).perform(book, tenant="team-a", title="x"), Receipt[Ticket])
    async with AsyncCounterfoil.open("sqlite:///:memory:") as same:
        assert_type(same, AsyncCounterfoil)
