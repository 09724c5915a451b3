"""The client: what a host may do wrong, through a real HTTP server, and what must never reach a message."""

import gzip
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from providers.base import FetchContext, Limits
from providers.errors import CredentialsRefused, InvalidAnswer, InvalidValue, ProviderUnavailable
from providers.http import Client, base_url
from tests.providers.conftest import NOW, ContextFor, Serve, Waits
from tests.providers.server import DRIP, HANG, RESET, Asked, LocalServer, Script, Served

URL = "https://cloud.lambda.ai/api"
HOSTS = frozenset({"cloud.lambda.ai", ".amazonaws.com"})
GOOD = Served.json({"price": 1.25})


@pytest.fixture
def client_of(context_for: ContextFor) -> Iterator[Any]:
    """Makes a client of one server; `limits` and environment variables as given."""
    clients = []

    def make(server: LocalServer, limits: Limits | None = None, **environment: str) -> Client:
        context = context_for("lambda", server, **environment)
        clients.append(Client("lambda", replace(context, limits=limits or context.limits), HOSTS))
        return clients[-1]

    yield make
    for client in clients:
        client.__exit__()


def get(client: Client) -> Any:
    return client.json("GET", URL, headers={"Authorization": "Bearer a-secret-key"})


def test_numbers_are_exact(serve: Serve, client_of: Any) -> None:
    data = get(client_of(serve(Script(Served.json('{"a": 0.1, "b": NaN, "c": 1e400}')))))
    assert str(data["a"]) == "0.1"
    assert data["b"].is_nan()
    assert str(data["c"]) == "1E+400"


@pytest.mark.parametrize("bad", [RESET, Served.json({}, status=500), Served.json({}, status=503)])
def test_what_passes_is_tried_again(serve: Serve, client_of: Any, waits: Waits, bad: Served) -> None:
    server = serve(Script(bad, bad, GOOD))
    assert get(client_of(server))["price"] == pytest.approx(1.25)
    assert len(server.asked) == 3
    assert waits.waited == [1, 2]


@pytest.mark.parametrize("status", [400, 404, 409, 410, 501])
def test_what_does_not_pass_is_not_tried_again(serve: Serve, client_of: Any, status: int) -> None:
    server = serve(Script(Served.json({}, status=status)))
    with pytest.raises(ProviderUnavailable, match=f"HTTP status {status}$"):
        get(client_of(server))
    assert len(server.asked) == 1


def test_a_host_that_never_answers_is_given_up(serve: Serve, client_of: Any, waits: Waits) -> None:
    server = serve(Script(HANG))
    with pytest.raises(ProviderUnavailable, match=r"no reply of 127.0.0.1 in time \(2 attempts\)"):
        get(client_of(server, Limits(read_s=0.05, attempts=2)))
    assert waits.waited == [1]


def test_a_port_that_nobody_listens_on_is_given_up(serve: Serve, client_of: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = client_of(serve(Script(GOOD)), COSTOPT_LAMBDA_BASE_URL=f"http://127.0.0.1:{port}")
    with pytest.raises(ProviderUnavailable, match=r"the connection to .* failed"):
        get(client)


@pytest.mark.parametrize(
    ("after", "waited"),
    [("7", 7), ("0", 0), (format_datetime(NOW + timedelta(seconds=9)), 9), ("soon", 1), ("", 1)],
)
def test_a_busy_host_is_given_the_time_that_it_asks_for(
    serve: Serve, client_of: Any, waits: Waits, after: str, waited: float
) -> None:
    server = serve(Script(Served.json({}, status=429, Retry_After=after), GOOD))
    assert get(client_of(server))
    assert waits.waited == [waited]


def test_a_busy_host_without_a_time_is_tried_after_growing_waits(serve: Serve, client_of: Any, waits: Waits) -> None:
    server = serve(Script(Served.json({}, status=429)))
    with pytest.raises(ProviderUnavailable, match="HTTP status 429"):
        get(client_of(server))
    assert waits.waited == [1, 2, 4, 8]


def test_nobody_waits_longer_than_the_limit(serve: Serve, client_of: Any, waits: Waits) -> None:
    server = serve(Script(Served.json({}, status=429, Retry_After="3600"), GOOD))
    with pytest.raises(ProviderUnavailable, match="to be tried again in 3600 s only"):
        get(client_of(server))
    assert waits.waited == []


def test_the_deadline_ends_everything(serve: Serve, client_of: Any, waits: Waits) -> None:
    client = client_of(serve(Script(GOOD)), Limits(total_s=10))
    assert get(client)
    waits.sleep(11)
    with pytest.raises(ProviderUnavailable, match="no answer within 10 s"):
        get(client)


def test_a_reply_that_drips_is_cut_at_the_deadline(serve: Serve, context_for: ContextFor) -> None:
    server = serve(Script(DRIP))
    seconds = count()
    context = replace(context_for("lambda", server), monotonic=lambda: float(next(seconds)), limits=Limits(total_s=10))
    with Client("lambda", context, HOSTS) as client, pytest.raises(ProviderUnavailable, match="no answer within 10 s"):
        client.json("GET", URL)


@pytest.mark.parametrize("kind", ["text/html", "text/html; charset=utf-8", "text/plain", ""])
def test_a_page_instead_of_json_is_refused(serve: Serve, client_of: Any, kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    with pytest.raises(InvalidAnswer, match="instead of JSON"):
        get(client_of(serve(Script(Served(b"<html>sign in</html>", 200, headers)))))


@pytest.mark.parametrize("body", ['{"data": {"gpu', "", "[" * 100_000, '{"a": 1', "\x00"])
def test_broken_json_is_refused(serve: Serve, client_of: Any, body: str) -> None:
    with pytest.raises(InvalidAnswer, match="not JSON"):
        get(client_of(serve(Script(Served.json(body)))))


def test_a_small_bomb_is_as_bad_as_a_large_file(serve: Serve, client_of: Any) -> None:
    bomb = gzip.compress(b" " * 32 * 1024**2)
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert len(bomb) < 64 * 1024
    with pytest.raises(InvalidAnswer, match="larger than 1 MiB"):
        get(client_of(serve(Script(Served(bomb, 200, headers))), Limits(reply_bytes=1024**2)))


def test_a_compressed_reply_is_read(serve: Serve, client_of: Any) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert get(client_of(serve(Script(Served(gzip.compress(b"[1]"), 200, headers))))) == [1]


def test_a_reply_that_is_not_what_its_encoding_says_is_given_up(serve: Serve, client_of: Any) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with pytest.raises(ProviderUnavailable, match=r"the connection to .* failed"):
        get(client_of(serve(Script(Served(b"not gzip", 200, headers)))))


def test_a_redirect_is_not_followed(serve: Serve, client_of: Any) -> None:
    server = serve(Script(Served(b"", 302, {"Location": "https://elsewhere.example/"})))
    with pytest.raises(InvalidAnswer, match="redirect"):
        get(client_of(server))
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_told_apart_with_what_to_do(serve: Serve, client_of: Any, status: int) -> None:
    client = client_of(serve(Script(Served.json({}, status=status))))
    with pytest.raises(CredentialsRefused, match="check the key"):
        client.json("GET", URL, hint="check the key")


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example/api",
        "http://cloud.lambda.ai/api",
        "https://cloud.lambda.ai:8443/api",
        "https://cloud.lambda.ai.example/api",
        "https://amazonaws.com.example/",
        "file:///etc/passwd",
    ],
)
def test_only_the_providers_own_hosts_are_asked(serve: Serve, client_of: Any, url: str) -> None:
    server = serve(Script(GOOD))
    with pytest.raises(InvalidAnswer, match="a host that is not the provider's"):
        client_of(server).json("GET", url)
    assert not server.asked


def test_without_a_mirror_a_request_goes_where_its_url_says(context: FetchContext) -> None:
    with Client("aws", context, HOSTS) as client:
        url = "https://ec2.eu-west-1.amazonaws.com/path?x=1"
        assert client.locate(url) == url


def test_a_mirror_takes_the_path_and_the_query(context: FetchContext) -> None:
    environment = {"COSTOPT_AWS_BASE_URL": "https://mirror.example/prices/"}
    with Client("aws", replace(context, environment=environment), HOSTS) as client:
        assert client.locate("https://ec2.amazonaws.com/a?b=c") == "https://mirror.example/prices/a?b=c"


@pytest.mark.parametrize(
    "value",
    [
        "http://mirror.example",
        "ftp://127.0.0.1",
        "127.0.0.1:8080",
        "https://user:secret@mirror.example",
        "https://mirror.example/?x=1",
        "http://169.254.169.254",
        "http://localhost.example",
    ],
)
def test_a_mirror_is_https_or_on_this_machine(value: str) -> None:
    with pytest.raises(InvalidValue, match="COSTOPT_AWS_BASE_URL"):
        base_url("aws", {"COSTOPT_AWS_BASE_URL": value})


@pytest.mark.parametrize(
    "value", ["http://127.0.0.1:80", "http://localhost:1/", "http://[::1]:9", "https://mirror.example/a"]
)
def test_a_mirror_may_be(value: str) -> None:
    assert base_url("aws", {"COSTOPT_AWS_BASE_URL": value}) == value.rstrip("/")


def test_a_certificate_that_nobody_vouches_for_is_refused(tls: ssl.SSLContext, client_of: Any) -> None:
    with LocalServer(Script(GOOD), tls).running() as server:
        assert server.url.startswith("https://")
        with pytest.raises(ProviderUnavailable, match="cannot be verified"):
            get(client_of(server))
        assert not server.asked


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """A server's context with a certificate for 127.0.0.1 that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    path = tmp_path / "server.pem"
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + made.sign(key, SHA256()).public_bytes(Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def test_a_line_of_netrc_does_not_replace_the_key(
    serve: Serve, client_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server = serve(Script(GOOD))
    get(client_of(server))
    assert server.asked[0].headers["authorization"] == "Bearer a-secret-key"


def test_no_message_quotes_a_key(serve: Serve, client_of: Any) -> None:
    for bad in (Served.json({"key": "a-secret-key"}, status=500), RESET, Served.json("a-secret-key"), HANG):
        client = client_of(serve(Script(bad)), Limits(attempts=1, read_s=0.05))
        with pytest.raises((ProviderUnavailable, InvalidAnswer)) as failure:
            client.json("GET", URL, params={"key": "a-secret-key"}, headers={"Authorization": "a-secret-key"})
        assert "a-secret-key" not in str(failure.value)


def test_lines_are_streamed_and_only_the_wanted_ones_reach_the_parser(serve: Serve, client_of: Any) -> None:
    text = "\r\n".join(["head", *(f"row {n}" for n in range(50_000)), "last"])
    client = client_of(serve(Script(Served(text.encode(), 200, {"Content-Type": "text/csv"}))))
    kept = client.lines(URL, list, keep=lambda line: line.endswith("000") or line in ("head", "last"))
    assert (kept[0], kept[1], kept[-1], len(kept)) == ("head", "row 1000", "last", 51)


def test_a_broken_transfer_starts_the_file_again(serve: Serve, client_of: Any) -> None:
    cut = Served(b"a\nb\n", 200, {"Content-Type": "text/csv"}, broken="reset")
    server = serve(Script(cut, Served(b"a\nb\nc\n", 200, {"Content-Type": "text/csv"})))
    assert client_of(server).lines(URL, list, keep=bool) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("served", "message"),
    [
        (Served(b"<html>", 200, {"Content-Type": "text/html"}), "HTML instead of a price file"),
        (Served(b"x" * 3_000_000, 200, {"Content-Type": "text/csv"}), "a line of more than 1 MiB"),
        (Served(b"ab\n" * 1_000_000, 200, {"Content-Type": "text/csv"}), "larger than 2 MiB"),
    ],
)
def test_a_file_that_is_none_is_refused(serve: Serve, client_of: Any, served: Served, message: str) -> None:
    limits = Limits(streamed_bytes=2 * 1024**2) if "2 MiB" in message else Limits()
    with pytest.raises(InvalidAnswer, match=message):
        client_of(serve(Script(served)), limits).lines(URL, list, keep=bool)


def test_an_sdk_session_has_the_same_bounds_and_sends_what_the_sdk_wants(serve: Serve, client_of: Any) -> None:
    server = serve(Script(Served.json({}, status=503), Served.json({"ok": True}, X_Odd="1")))
    reply = client_of(server).sdk_session().post(URL, json={"a": 1}, headers={"Authorization": "Bearer token"})
    assert reply.json() == {"ok": True}
    assert reply.headers["X-Odd"] == "1"
    asked = server.asked[-1]
    assert (asked.method, json.loads(asked.body), asked.headers["authorization"]) == ("POST", {"a": 1}, "Bearer token")


def test_pages_end_by_their_token_and_never_go_on_for_ever(serve: Serve, client_of: Any) -> None:
    client = client_of(serve(Script(GOOD)), Limits(pages=5))
    tokens = iter(["a", "b", ""])
    assert list(client.pages(lambda token: (token, next(tokens)))) == [None, "a", "b"]
    with pytest.raises(InvalidAnswer, match="named twice"):
        list(client.pages(lambda token: (token, "a")))
    numbers = iter(range(100))
    with pytest.raises(InvalidAnswer, match="more than 5 pages"):
        list(client.pages(lambda token: (token, str(next(numbers)))))


def test_a_server_sees_what_was_asked(serve: Serve, client_of: Any) -> None:
    server = serve(Script(GOOD))
    client_of(server).json("POST", URL, params=[("a", "1"), ("a", "2")], payload={"x": [1]})
    asked: Asked = server.asked[0]
    assert (asked.method, asked.path, list(asked.query)) == ("POST", "/api", [("a", "1"), ("a", "2")])
    assert json.loads(asked.body) == {"x": [1]}
