"""A payment gateway that speaks Stripe's language over the counting provider's desk.

`python -m counterfoil.testing.gateway` prints its URL. It counts charges, honours keys or not, and
misbehaves on order; `/count`, `/faults` and the rest are the desk's.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from counterfoil.testing.provider import Answer, Handler, attend, main
from counterfoil.testing.provider_desk import Accepted, Submission

BAD_KEYS = {"Bearer sk_test_wrong": 401, "Bearer sk_test_weak": 403}
ERRORS: Mapping[int, dict[str, str]] = {
    400: {"type": "invalid_request_error", "message": "No such currency"},
    401: {"type": "invalid_request_error", "message": "Invalid API key"},
    402: {"type": "card_error", "code": "card_declined", "message": "Your card was declined."},
    403: {"type": "invalid_request_error", "message": "This key may not do that"},
    409: {"type": "invalid_request_error", "code": "idempotency_key_in_use", "message": "Still in progress"},
    422: {"type": "idempotency_error", "message": "Keys for idempotent requests can only be used with the same"},
    429: {"type": "invalid_request_error", "code": "rate_limit", "message": "Too many requests"},
}
STATUSES = {201: 200, 422: 400}
"""Where Stripe's status is another than the desk's."""
PREFIXES = {"payment_intents": ("pi", "payment_intent"), "refunds": ("re", "refund")}


class Gateway(Handler):
    """Stripe's language over a desk."""

    def do_POST(self) -> None:  # noqa: N802 - http.server finds it by name
        """Create an object, or accept a control order."""
        kind = self._kind()
        if kind is None:
            super().do_POST()
        elif self.headers["Authorization"] in BAD_KEYS:
            self._say(Answer(status=BAD_KEYS[self.headers["Authorization"]]))
        else:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            key = self.headers.get("Idempotency-Key")
            self._say(attend(self.server.desk, Submission(kind=kind, body=dict(parse_qsl(text)), key=key)), kind)

    def do_GET(self) -> None:  # noqa: N802
        """List or search objects, or answer a control question."""
        kind = self._kind()
        if kind is None:
            super().do_GET()
            return
        desk, query = self.server.desk, dict(parse_qsl(urlsplit(self.path).query))
        sought = re.search(r"metadata\['counterfoil_key'\]:'(\w+)'", query.get("query", ""))
        found = desk.find(kind, sought[1] if sought else None, None)
        given = {name: value for name, value in query.items() if name not in {"query", "limit", "starting_after"}}
        listed = [one for one in reversed(found) if given.items() <= one.body.items()]
        rest = listed[next((n + 1 for n, one in enumerate(listed) if _id(one) == query.get("starting_after")), 0) :]
        page = rest[: int(query.get("limit", 10))]
        self._end(
            Answer(
                body={
                    "object": "search_result" if sought else "list",
                    "url": urlsplit(self.path).path,
                    "data": [shown(one) for one in page],
                    "has_more": len(rest) > len(page),
                }
            )
        )

    def _kind(self) -> str | None:
        found = re.match(r"/v1/(\w+)(/search)?(\?|$)", self.path)
        return found[1] if found else None

    def _say(self, answer: Answer, kind: str = "") -> None:
        error = ERRORS.get(answer.status) or {"type": "api_error", "message": "An error occurred"}
        is_made = answer.status == HTTPStatus.CREATED
        body = shown_body(kind, answer.body) if is_made else {"error": error}
        status = STATUSES.get(answer.status, answer.status)
        self._end(Answer(status=status, body=body, headers=answer.headers, ending=answer.ending))


def _id(one: Accepted) -> str:
    return f"{PREFIXES[one.kind][0]}_{one.id}"


def shown(one: Accepted) -> dict[str, Any]:
    """Return what was accepted as Stripe shows it."""
    return shown_body(one.kind, {**one.body, "id": one.id})


def shown_body(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as Stripe shows it; a description `declined` makes one whose confirmation failed."""
    prefix, name = PREFIXES[kind]
    is_declined = body.get("description") == "declined"
    held = {key[9:-1]: value for key, value in body.items() if key.startswith("metadata[")}
    return {
        "id": f"{prefix}_{body['id']}",
        "object": name,
        "amount": int(body.get("amount", 0)),
        "client_secret": f"{prefix}_{body['id']}_secret_abc",
        "created": 1_700_000_000 + body["id"],
        "metadata": held,
        "status": "requires_payment_method" if is_declined else "succeeded",
        "last_payment_error": {"code": "card_declined"} if is_declined else None,
    }


if __name__ == "__main__":
    main(handler=Gateway)
