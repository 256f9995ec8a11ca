"""The person who settles what nobody knows: looks into the mailbox or the gateway's log, and says what is there."""

from typing import Any, Final

from counterfoil import Counterfoil
from counterfoil.core.provider_key import provider_key
from counterfoil.demo.hiring.office import Office
from counterfoil.model import OperationKey
from counterfoil.shown import Case, Operation
from counterfoil.testing.mail_client import MailboxClient
from counterfoil.testing.provider_client import ProviderClient

WHO: Final = "ada"


def settle(cf: Counterfoil, office: Office, mailbox: MailboxClient, gateway: ProviderClient) -> bool:
    """Settle what is left to a person, and say whether anything was; a worker settles what can be asked or repeated."""
    opened = [(case, _operation(cf, case)) for case in cf.review.list(tenant=office.tenant).items]
    mine = [(case, operation) for case, operation in opened if is_opaque(operation)]
    for case, operation in mine:
        _judge(cf, case, _found(operation, mailbox, gateway))
    return bool(mine)


def is_opaque(operation: Operation) -> bool:
    """Say whether the operation's provider honours no keys and cannot be asked."""
    return operation.facts.key_lifetime is None and not operation.facts.queryable


def _operation(cf: Counterfoil, case: Case) -> Operation:
    return cf.review.show(case.case_id, tenant=case.tenant)[1].operation


def _judge(cf: Counterfoil, case: Case, value: Any) -> None:
    named: Any = {"tenant": case.tenant, "by": WHO, "expect_version": case.version}
    if value is None:
        reason = "it is not there"
        cf.review.resolve(case.case_id, verdict="did_not_happen_retry", reason=reason, **named)
    else:
        cf.review.resolve(case.case_id, verdict="happened", evidence="seen there", value=value, **named)


def _found(operation: Operation, mailbox: MailboxClient, gateway: ProviderClient) -> Any:
    """Return what the effect would have returned, or None if it did not happen."""
    key = provider_key(
        OperationKey(tenant=operation.tenant, operation_id=operation.operation_id), operation.facts.key_length
    )
    for mail in mailbox.mails():
        if key in mail.message_id:
            return {"message_id": mail.message_id, "accepted": list(mail.recipients), "refused": {}}
    for charge in gateway.accepted():
        if charge.body.get("metadata[counterfoil_key]") == key:
            return {"id": f"pi_{charge.id}", "status": "succeeded"}
    return None
