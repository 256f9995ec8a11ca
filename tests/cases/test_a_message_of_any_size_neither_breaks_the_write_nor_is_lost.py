"""B47: the limit of a notification is 8000 bytes; a larger one raised inside the transaction, and the row was lost.

Sources: https://github.com/danidee10/channels_postgres/issues/84, https://github.com/sagemathinc/cocalc/issues/1718

What wakes a worker carries no payload, and a worker that nobody wakes finds what is due all the same.
"""

import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest

from counterfoil import Counterfoil, effect
from tests.stores import is_postgres

SIZES = {"20 KB": "x" * 20_000, "two bytes each": "é" * 4_001, "four bytes each": "😀" * 2_001, "1 MB": "y" * 2**20}
sent: list[tuple[str, str]] = []


@effect("cases.large", key="{request_id}/large")
def post(call: Any, *, text: str) -> int:
    sent.append((call.tenant, text))
    return len(text)


@pytest.mark.parametrize("text", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("tenant", ["t", "mandant-ü" * 20])
def test_it_commits_with_the_business_row_and_is_delivered(url: str, text: str, tenant: str) -> None:
    sent.clear()
    own: Any = (
        psycopg.connect(url, autocommit=True)
        if is_postgres(url)
        else sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    )
    with Counterfoil.open(url) as cf, closing(own):
        own.execute("create table orders (id text)")
        own.execute("begin")
        own.execute("insert into orders values ('o')")
        cf.join(own).enqueue(post, text=text, tenant=tenant, request_id="r")
        own.execute("commit")
        cf.drain(post)
        assert own.execute("select count(*) from orders").fetchone() == (1,)
    assert sent == [(tenant, text)]
