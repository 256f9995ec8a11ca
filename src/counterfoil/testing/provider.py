"""Serve a counting ticket provider over HTTP, in a process of its own.

It is the judge of a test: it counts what it accepted, outside of the process and of
the database under test, and misbehaves on order. Start it with
`python -m counterfoil.testing.provider`, or with `CountingProvider`.

    POST /tickets, /effects/{kind}      accept an effect (Idempotency-Key honoured)
    GET  /tickets, /effects/{kind}      look up, by ?key= or ?request_id=
    GET  /count?total=&wait=            what was accepted; waits for that many
    POST /faults                        [{"name", "kind"?, "key"?}, ...], one-shot
    GET  /held?count=&wait=             POSTs whose answer is withheld; waits for them
    POST /release, /reset, /settings, /clock
"""

import argparse
import json
import os
import signal
import socket
import socketserver
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from counterfoil.testing.children import wait_for_orphanhood
from counterfoil.testing.provider_desk import (
    Accepted,
    Claim,
    Desk,
    JsonObject,
    Mismatch,
    Settings,
    Submission,
    Twin,
)
from counterfoil.testing.provider_faults import BEHAVIOURS, Behaviour, Ending, Fault, Problem

Query = Mapping[str, str]


class Malformed(ValueError):
    """Refuse a request that cannot be read; nothing has been done for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Hold what to send, and how to end the exchange."""

    status: int = 200
    body: JsonObject = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    ending: Ending = "answer"


_CLOSED: Final = Answer(ending="fin")


def _problem(problem: Problem, detail: str = "") -> Answer:
    """Write a problem (RFC 9457); only a promise carries `"accepted": false`."""
    body: JsonObject = {
        "type": f"urn:counterfoil:testing:{problem.code}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": detail or ("Nothing was accepted." if problem.promise else "No promise."),
    }
    headers = {"Content-Type": "application/problem+json"}
    if problem.promise:
        body["accepted"] = False
    if problem.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        headers["Retry-After"] = "1"
    return Answer(status=problem.status, body=body, headers=headers)


def _refused(status: int, code: str, detail: str) -> Answer:
    return _problem(Problem(status=status, code=code, promise=True), detail)


def attend(desk: Desk, submission: Submission) -> Answer:
    """Take one POST through fault, key, acceptance and answer."""
    behaviour = desk.arrive(submission)
    if behaviour.ending == "kill" and not _may_kill(submission.client_pid):
        return _refused(400, "no-client-pid", "X-Client-Pid must name a killable client.")
    if not behaviour.accepts:
        return _ended(behaviour, _CLOSED)
    match desk.admit(submission):
        case Mismatch():
            return _refused(422, "key-reused", "This key came before with other content.")
        case Twin():
            return _refused(409, "in-progress", "The first request of this key is open.")
        case Claim() as claim:
            try:
                return _carry_out(desk, claim, behaviour)
            finally:
                # Before the answer leaves: whoever has read it must find its key settled.
                desk.conclude(claim)


def _carry_out(desk: Desk, claim: Claim, behaviour: Behaviour) -> Answer:
    replayed = claim.accepted is not None
    if behaviour.hold == "before":
        desk.hold(claim)
    accepted = desk.accept(claim)
    if accepted is None:
        return _CLOSED
    if behaviour.hold == "after":
        desk.hold(claim)
    return _ended(behaviour, _created(accepted, replayed=replayed))


def _created(accepted: Accepted, *, replayed: bool) -> Answer:
    headers = {"Idempotent-Replayed": "true"} if replayed else {}
    return Answer(status=201, body=_shown(accepted), headers=headers)


def _shown(accepted: Accepted) -> JsonObject:
    return {**accepted.body, "id": accepted.id}


def _ended(behaviour: Behaviour, answer: Answer) -> Answer:
    shown = _problem(behaviour.problem) if behaviour.problem else answer
    return Answer(
        status=shown.status,
        body=shown.body,
        headers=shown.headers,
        ending=behaviour.ending,
    )


def _may_kill(pid: int | None) -> bool:
    # 0 and negative numbers are process groups; our parent is the test run itself.
    return pid is not None and pid > 1 and pid not in (os.getpid(), os.getppid())


def look_up(desk: Desk, kind: str, query: Query) -> Answer:
    """Answer what was accepted under a key or request id; absence is an empty list."""
    if not desk.settings.lookup:
        return _refused(404, "no-lookup", "This provider cannot be asked.")
    key, request_id = query.get("key"), query.get("request_id")
    if key is None and request_id is None:
        return _refused(400, "nothing-asked", "Ask by key or by request_id.")
    found = desk.find(kind, key, request_id)
    return Answer(body={"found": [_shown(one) for one in found]})


# -- control endpoints: (desk, query, parsed body) -> answer

Control = Callable[[Desk, Query, Any], Answer]


def _obeyed(control: Control, desk: Desk, query: Query, body: object) -> Answer:
    try:
        return control(desk, query, body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Malformed(str(error)) from error


def _count(desk: Desk, query: Query, _: object) -> Answer:
    total, wait = int(query.get("total", 0)), float(query.get("wait", 0))
    return Answer(body=desk.count(total, wait))


def _held(desk: Desk, query: Query, _: object) -> Answer:
    count, wait = int(query.get("count", 1)), float(query.get("wait", 0))
    return Answer(body={"held": [asdict(one) for one in desk.wait_held(count, wait)]})


def _faults(desk: Desk, _: Query, body: Any) -> Answer:
    faults = [Fault(**fault) for fault in body]
    if unknown := {fault.name for fault in faults} - BEHAVIOURS.keys():
        raise ValueError(f"unknown faults: {sorted(unknown)}")
    desk.order(faults)
    return Answer(body={"ordered": len(faults)})


def _release(desk: Desk, _: Query, body: Any) -> Answer:
    return Answer(body={"released": desk.release(body.get("key"))})


def _reset(desk: Desk, _: Query, __: object) -> Answer:
    desk.reset()
    return Answer()


def _settings(desk: Desk, _: Query, body: Any) -> Answer:
    desk.configure(Settings(**body))
    return Answer()


def _clock(desk: Desk, _: Query, body: Any) -> Answer:
    desk.advance(float(body["advance"]))
    return Answer()


CONTROLS: Final[Mapping[tuple[str, str], Control]] = {
    ("GET", "/count"): _count,
    ("GET", "/held"): _held,
    ("POST", "/faults"): _faults,
    ("POST", "/release"): _release,
    ("POST", "/reset"): _reset,
    ("POST", "/settings"): _settings,
    ("POST", "/clock"): _clock,
}


def _kind_of(path: str) -> str | None:
    if path == "/tickets":
        return "tickets"
    head, slash, kind = path.removeprefix("/").partition("/")
    return unquote(kind) if head == "effects" and slash and kind else None


class Server(ThreadingHTTPServer):
    """Serve one desk, one thread per connection."""

    # A hammering test opens many connections at once; 5 would refuse some of them.
    request_queue_size = 128

    def __init__(self, desk: Desk, port: int, handler: "type[Handler] | None" = None) -> None:
        """Listen on the loopback only: this server kills processes on order."""
        self.desk: Final = desk
        super().__init__(("127.0.0.1", port), handler or Handler)

    def server_bind(self) -> None:
        """Bind without the reverse name look-up of `HTTPServer`, which may block."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"http://{self.server_name}:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent about clients that left: that is what the tests are about."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Speak HTTP for a desk; a subclass may speak another API's language."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        """Answer a look-up or a control question."""
        self._handle(lambda kind, query, _: look_up(self.server.desk, kind, query))

    def do_POST(self) -> None:
        """Accept an effect or a control order."""
        self._handle(lambda kind, _, body: attend(self.server.desk, self._submission(kind, body)))

    def _handle(self, effect: Callable[[str, Query, Any], Answer]) -> None:
        target = urlsplit(self.path)
        query = dict(parse_qsl(target.query))
        control = CONTROLS.get((self.command, target.path))
        kind = _kind_of(target.path)
        try:
            body = self._body()
            if control is not None:
                answer = _obeyed(control, self.server.desk, query, body)
            elif kind is not None:
                answer = effect(kind, query, body)
            else:
                answer = _refused(404, "no-such-path", target.path)
        except Malformed as error:
            answer = _refused(400, "malformed", str(error))
        self._end(answer)

    def _body(self) -> object:
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise Malformed("send a Content-Length; chunks are not read")
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            return json.loads(text) if text else {}
        except ValueError as error:
            raise Malformed(str(error)) from error

    def _submission(self, kind: str, body: Any) -> Submission:
        if not isinstance(body, dict):
            raise Malformed("the body must be a JSON object")
        pid = self.headers.get("X-Client-Pid", "")
        return Submission(
            kind=kind,
            body=body,
            key=self.headers.get("Idempotency-Key"),
            request_id=self.headers.get("X-Request-Id", body.get("request_id")),
            tenant=self.headers.get("X-Tenant", body.get("tenant")),
            client_pid=int(pid) if pid.isdecimal() else None,
        )

    def _end(self, answer: Answer) -> None:
        if answer.ending == "kill":
            with suppress(ProcessLookupError):
                os.kill(int(self.headers["X-Client-Pid"]), signal.SIGKILL)
        if answer.ending in ("answer", "cut"):
            self._send(answer)
        if answer.ending == "rst":
            self._reset_connection()
        if answer.ending != "answer":
            self.close_connection = True

    def _send(self, answer: Answer) -> None:
        text = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text[: len(text) // 2] if answer.ending == "cut" else text)

    def _reset_connection(self) -> None:
        # A zero linger turns the close into a RST; closing here also keeps socketserver
        # from sending a FIN first.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--keys", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--lookup", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--lag", type=float, default=0.0, help="seconds")
    parser.add_argument("--key-lifetime", type=float, default=None, help="seconds")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, handler: type[Handler] | None = None) -> None:
    """Print the base URL as the first line, and serve until killed or orphaned."""
    parent = os.getppid()
    given = vars(_arguments(arguments))
    port = given.pop("port")
    server = Server(Desk(Settings(**given)), port, handler)
    Thread(target=server.serve_forever, daemon=True).start()
    print(server.url, flush=True)  # noqa: T201 - the parent reads it
    with suppress(KeyboardInterrupt):
        wait_for_orphanhood(parent)


if __name__ == "__main__":
    main()
