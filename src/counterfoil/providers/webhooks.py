"""Send webhooks by the Standard Webhooks rules: one id for all attempts, a fresh time for each, signed by its library.

The id is derived from the operation, so that a receiver can drop a repeat. One that promises to is a keyed provider:
declare for how long it remembers, `Provider(key_lifetime="72h")`. Of any other nothing is known: leave it opaque.

Needs the extra `webhooks`: pip install 'counterfoil[webhooks]'.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from counterfoil.errors import ContradictoryDeclaration, MissingExtra
from counterfoil.model import Refused

try:
    from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

    from counterfoil.providers.http import Answers, Http
except (ModuleNotFoundError, MissingExtra):
    raise MissingExtra(
        "counterfoil.providers.webhooks needs httpx and standardwebhooks, which are not both installed:"
        " pip install 'counterfoil[webhooks]'"
    ) from None

from counterfoil.providers.posting import Posted, answers, apost, post

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from counterfoil.effects import EffectCall

__all__ = ["STANDARD", "Answers", "Sender", "answers"]

STANDARD: Final = answers(duplicate={409})
"""What answers to a webhook mean: 409 says that the receiver has it already."""


def _now() -> datetime:
    return datetime.now(UTC)


class Sender:
    """Sends webhooks through httpx, each once, with the signatures of one receiver's secrets.

    Args:
        secrets: One, or several while they are changed (`whsec_...`): each signs, and any of them verifies.
        answers: What this receiver's statuses mean: `webhooks.answers(duplicate={409}, refused={400})`.
        client: The name under which its `httpx.Client` (or `AsyncClient`) is provided.
        now: The clock, for tests.

    Raises:
        ContradictoryDeclaration: no secret, or one that cannot be read.
    """

    def __init__(
        self,
        secrets: str | Sequence[str],
        *,
        answers: Answers = STANDARD,
        client: str = "",
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._signers = [_signer(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
        if not self._signers:
            raise ContradictoryDeclaration("Webhooks without a secret could come from anybody; name at least one.")
        self._http = Http(answers=answers, client=client, key_header="webhook-id")
        self._now = now

    def send(self, call: EffectCall, url: str, payload: object) -> Posted:
        """Send one and return what the effect returns: `webhook_id`, `status` and `duplicate` (it had it already).

        Raises:
            NotSent: the receiver did not take it and may be asked again, after `retry_after` seconds if it says so.
            Refused: it will never take it, or the payload is not JSON.
            UnclearAnswer: nobody knows, and so it is after a broken connection.
        """
        return post(self._http, call, url, *self.message(call, payload), webhook_id=call.provider_key)

    async def asend(self, call: EffectCall, url: str, payload: object) -> Posted:
        """Send one with an `httpx.AsyncClient`; otherwise as `send`."""
        return await apost(self._http, call, url, *self.message(call, payload), webhook_id=call.provider_key)

    def message(self, call: EffectCall, payload: object) -> tuple[dict[str, str], bytes]:
        """Return headers and body of one attempt.

        Raises:
            Refused: the payload is not JSON.
        """
        text, now = _written(payload), self._now()
        headers = {
            "content-type": "application/json",
            "webhook-id": call.provider_key,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(each.sign(call.provider_key, now, text) for each in self._signers),
        }
        return headers, text.encode()


def _signer(secret: str) -> Webhook:
    try:
        return Webhook(secret)
    except (ValueError, EmptyWebhookSecretError):
        raise ContradictoryDeclaration("A webhook secret is base64, usually after `whsec_`; one is not.") from None


def _written(payload: object) -> str:
    """Return a payload as text; text and bytes are sent as they are."""
    try:
        if isinstance(payload, bytes):
            return payload.decode()
        if isinstance(payload, str):
            return payload
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(f"The payload cannot be written as JSON ({type(error).__name__}).") from error
