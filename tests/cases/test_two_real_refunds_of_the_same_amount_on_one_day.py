"""B34: the key was payment number plus date, so that a second genuine partial refund was refused.

Sources: https://github.com/Sylius/PayPalPlugin/issues/264
"""

from typing import Any

from counterfoil import Counterfoil, effect


def test_equal_payloads_never_merge_operations_with_different_ids(url: str) -> None:
    sent: list[tuple[str, str]] = []

    @effect("cases.refund-line", key="refund:{payment}:{line}")
    def refund_line(call: Any, *, payment: str, line: int, amount: int) -> int:
        sent.append((call.operation_id, call.provider_key))
        return len(sent)

    @effect("cases.refund", key="refund:{request_id}")
    def refund(call: Any, *, payment: str, amount: int) -> int:
        sent.append((call.operation_id, call.provider_key))
        return len(sent)

    with Counterfoil.open(url) as cf:
        for _ in range(2):
            by_line = [cf.perform(refund_line, tenant="t", payment="p", line=n, amount=5).value for n in (1, 2)]
            by_request = [cf.perform(refund, tenant="t", request_id=r, payment="p", amount=5).value for r in "ab"]
            assert (by_line, by_request) == ([1, 2], [3, 4])
    assert len(sent) == len(set(sent)) == len({key for _, key in sent}) == 4
