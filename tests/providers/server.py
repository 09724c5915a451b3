"""Turns scripted replies, or a folder of recorded exchanges, into a real HTTP server on the loopback interface."""

import json
import os
import socket
import ssl
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.parse import parse_qsl, urlsplit

from providers.recorder import signature


@dataclass(frozen=True)
class Asked:
    """A request as the server received it."""

    method: str
    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    body: str

    def param(self, name: str) -> str | None:
        return dict(self.query).get(name)


@dataclass(frozen=True)
class Served:
    """A reply to send; `broken` names what goes wrong while it is sent."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    broken: str = ""

    @staticmethod
    def json(value: object, status: int = 200, **headers: str) -> "Served":
        text = value if isinstance(value, str) else json.dumps(value, default=float)
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return Served(text.encode(), status, {"Content-Type": "application/json", **named})


HANG = Served(broken="hang")
"""The server takes the request and never answers."""

RESET = Served(b'{"data": {"gpu', 200, {"Content-Type": "application/json"}, broken="reset")
"""The connection is reset in the middle of the body."""

DRIP = Served(b" " * 100_000, 200, {"Content-Type": "application/json"}, broken="drip")
"""The body comes byte by byte."""

Respond = Callable[[Asked], Served]


class LocalServer:
    """Answers every request with `respond` and remembers it in `asked`; with `tls` over https."""

    def __init__(self, respond: Respond, tls: ssl.SSLContext | None = None) -> None:
        self.respond = respond
        self.asked: list[Asked] = []
        self.closing = Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._scheme = "https" if tls else "http"
        if tls:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        return f"{self._scheme}://{host!s}:{port}"

    @contextmanager
    def running(self) -> Iterator["LocalServer"]:
        thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.closing.set()
            self._http.shutdown()
            self._http.server_close()
            thread.join()


class Script:
    """Gives one reply after the other; the last one is repeated."""

    def __init__(self, *replies: Served) -> None:
        self._replies = list(replies)

    def __call__(self, asked: Asked) -> Served:
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]


class Replay:
    """Answers from the exchanges that `costopt refresh --record` wrote to a provider's folder, each in its order."""

    def __init__(self, folder: Path) -> None:
        self._replies: dict[tuple[str, ...], list[Served]] = defaultdict(list)
        for path in sorted(folder.glob("*.json")):
            exchange = json.loads(path.read_text(encoding="utf-8"))
            asked, got = exchange["request"], exchange["response"]
            query = [(name, value) for name, value in asked["query"]]
            key = signature(asked["method"], asked["path"], query, asked["headers"], asked["body"])
            self._replies[key].append(Served(got["body"].encode(), got["status"], got["headers"]))

    def __call__(self, asked: Asked) -> Served:
        replies = self._replies[signature(asked.method, asked.path, asked.query, asked.headers, asked.body)]
        if not replies:
            return Served.json({"error": "this request was not recorded"}, status=404)
        return replies.pop(0) if len(replies) > 1 else replies[0]


def _handler(server: LocalServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            asked = Asked(
                self.command,
                parts.path,
                parse_qsl(parts.query, keep_blank_values=True),
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(length).decode(),
            )
            server.asked.append(asked)
            served = server.respond(asked)
            if served.broken == "hang":
                server.closing.wait()
                return
            self.send_response(served.status)
            for name, value in served.headers.items():
                self.send_header(name, value)
            announced = len(served.body) + (1000 if served.broken == "reset" else 0)
            self.send_header("Content-Length", str(announced))
            self.end_headers()
            if served.broken == "drip":
                for byte in served.body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                return
            self.wfile.write(served.body)
            if served.broken == "reset":
                self.wfile.flush()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(self.connection.detach())
                self.close_connection = True

        def handle(self) -> None:
            with suppress(OSError, ValueError):
                super().handle()

        def finish(self) -> None:
            with suppress(OSError, ValueError):
                super().finish()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    return Handler
