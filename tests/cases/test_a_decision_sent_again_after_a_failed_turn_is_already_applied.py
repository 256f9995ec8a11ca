"""B19: the answer was used, the tool ran, the turn failed; the same answer again could not be told from a new one.

Sources: https://github.com/microsoft/agent-framework/issues/7458
"""

import pytest

from tests.cases.counted import Counted
from tests.cases.deciding import ON, TENANT, WHO, State, asked, asking, graph, opened, refund


class ModelDown(Exception):
    """The next model call answers 500."""


@pytest.mark.parametrize("where", ["the same step", "the next step"])
@pytest.mark.parametrize("times", [1, 3])
def test_the_run_goes_on_from_the_receipt(counted: Counted, url: str, where: str, times: int) -> None:
    answers = iter([500] * times + [200])

    def model(_: State) -> State:
        if next(answers) != 200:
            raise ModelDown
        return {"log": ["told"]}

    def both(state: State) -> State:
        return {"log": [*asking(refund, amount=10)(state)["log"], *model(state)["log"]]}

    with opened(url, counted.provider) as cf:
        nodes = [both] if where == "the same step" else [asking(refund, amount=10), model]
        made = graph(cf, *nodes)
        cf.run(made, {}, **WHO)
        question = asked(cf)
        first = cf.approvals.approve(question.approval_id, tenant=TENANT, by="ann")
        for _ in range(times):
            with pytest.raises(ModelDown):
                cf.run(made, None, **ON)
            again = cf.approvals.approve(question.approval_id, tenant=TENANT, by="ann")
            assert (again.state, again.decided_at) == (first.state, first.decided_at)
            assert again.spent_at is not None
        assert cf.run(made, None, **ON)["log"] == ["sent", "told"]
        assert cf.approvals.approve(question.approval_id, tenant=TENANT, by="ann").decided_at == first.decided_at
    assert counted.provider.count() == 1
