"""A receiver of webhooks and events: it verifies and parses them with their libraries, and counts what is genuine.

`python -m tests.providers.receiver` prints its URL. `/hooks/old` and `/hooks/new` know one secret each, `/events` takes
events; `?answer=503&retry-after=30` is answered without taking anything, `?repeat=409` to what came before. `/count`,
`/faults` and the rest are the desk's.
"""

import base64
from urllib.parse import parse_qsl, urlsplit

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from counterfoil.testing.provider import Answer, Handler, attend, main
from counterfoil.testing.provider_desk import Submission

SECRETS = {name: "whsec_" + base64.b64encode(name.encode() * 8).decode() for name in ("old", "new")}


class Receiver(Handler):
    def do_POST(self) -> None:  # noqa: N802 - http.server finds it by name
        target = urlsplit(self.path)
        first, *rest = target.path.strip("/").split("/")
        if first not in {"hooks", "events"}:
            super().do_POST()
            return
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            submission = self._hook(rest[0], text) if first == "hooks" else self._event(text)
        except WebhookVerificationError:
            self._end(Answer(status=401))
            return
        self._take(submission, dict(parse_qsl(target.query)))

    def _take(self, submission: Submission, query: dict[str, str]) -> None:
        if "answer" in query:
            headers = {"Retry-After": query["retry-after"]} if "retry-after" in query else {}
            self._end(Answer(status=int(query["answer"]), headers={**headers, "Location": "/hooks/new"}))
            return
        answer = attend(self.server.desk, submission)
        is_repeat = "Idempotent-Replayed" in answer.headers
        self._end(Answer(status=int(query["repeat"])) if is_repeat and "repeat" in query else answer)

    def _hook(self, secret: str, text: bytes) -> Submission:
        data = Webhook(SECRETS[secret]).verify(text, dict(self.headers.items()))
        seen = {name: self.headers[name] for name in ("webhook-id", "webhook-timestamp")}
        return Submission(
            kind="hooks", body={"data": data}, key=seen["webhook-id"], request_id=seen["webhook-timestamp"]
        )

    def _event(self, text: bytes) -> Submission:
        headers = {name.lower(): value for name, value in self.headers.items()}
        event = from_http_event(HTTPMessage(headers=headers, body=text))
        mode = "binary" if "ce-id" in headers else "structured"
        attributes = {name: str(value) for name, value in event.get_attributes().items()}
        if "ce-time" not in headers and b'"time"' not in text:
            del attributes["time"]  # the library filled in when it read it
        data = event.get_data()
        body = {
            "mode": mode,
            "data": data.decode("latin-1") if isinstance(data, bytes) else data,
            "attributes": attributes,
        }
        return Submission(kind="events", body=body, key=f"{event.get_source()} {event.get_id()}")


if __name__ == "__main__":
    main(handler=Receiver)
