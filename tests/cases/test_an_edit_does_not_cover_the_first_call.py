"""B17: a person changed the recipient and it was sent; then the model sent to the first recipient as well.

Sources: https://github.com/langchain-ai/langchain/issues/33787
"""

import pytest

from counterfoil.errors import DecisionConflict
from tests.cases.counted import Counted
from tests.cases.deciding import ON, TENANT, WHO, asked, asking, bodies, graph, mail, opened


@pytest.mark.parametrize("again", ["next turn", "next step"])
@pytest.mark.parametrize("ruling", ["approve", "reject"])
def test_the_first_call_is_a_new_question_that_shows_what_was_sent(
    counted: Counted, url: str, again: str, ruling: str
) -> None:
    with opened(url, counted.provider) as cf:
        ask = asking(mail, to="ann@example.test")
        made = graph(cf, ask, ask) if again == "next step" else graph(cf, ask)
        cf.run(made, {}, **WHO)
        first = asked(cf)
        cf.approvals.edit(first.approval_id, tenant=TENANT, by="mei", changes={"to": "bob@example.test"})
        cf.run(made, None, **ON)
        cf.approvals.approve(asked(cf).approval_id, tenant=TENANT, by="mei")
        cf.run(made, None, **ON)
        if again == "next turn":
            cf.run(made, {}, **WHO)
        assert bodies(counted.provider) == [{"to": "bob@example.test"}]
        question = cf.approvals.show(asked(cf).approval_id, tenant=TENANT)
        assert question.arguments == {"to": "ann@example.test"}
        assert [(one.operation_id, one.state) for one in question.others] == [
            ("r-1/mail", "cancelled"),
            ("r-1/mail~edit-1", "succeeded"),
        ]
        with pytest.raises(DecisionConflict, match="edited"):
            cf.approvals.approve(first.approval_id, tenant=TENANT, by="mei")  # the old one covers nothing
        cf.run(made, None, **ON)
        assert counted.provider.count() == 1
        getattr(cf.approvals, ruling)(question.approval.approval_id, tenant=TENANT, by="mei", reason="so")
        cf.run(made, None, **ON)
        sent = [{"to": "bob@example.test"}, {"to": "ann@example.test"}]
        assert bodies(counted.provider) == (sent if ruling == "approve" else sent[:1])
