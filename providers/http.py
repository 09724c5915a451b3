"""Turns a request to a provider into one bounded reply: timeouts, retries, a deadline, limits of size and pages.

Nothing that a provider's host sends can make a fetch endless or fill the memory, and no message quotes a URL, a header
or a body: they may hold a key.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from io import BytesIO
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

from providers.base import FetchContext
from providers.errors import CredentialsRefused, InvalidAnswer, InvalidValue, ProviderUnavailable

if TYPE_CHECKING:
    import requests
    from requests.adapters import HTTPAdapter

_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_WAIT_S: Final = 1.0
_CHUNK_BYTES: Final = 32 * 1024
_LONGEST_LINE_BYTES: Final = 1024 * 1024
_ABOUT_THE_TRANSFER: Final = frozenset({"content-encoding", "content-length", "transfer-encoding", "connection"})
_SIGN_IN_HOSTS: Final = frozenset({"login.microsoftonline.com", "oauth2.googleapis.com"})
"""What these say is a secret: it is never recorded."""

_USER_AGENT: Final = "costopt (price refresh)"

T = TypeVar("T")
Params = Mapping[str, str] | Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply read to its end: status, headers by lower-case name, decompressed body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").split(";")[0].strip().lower()


class _Retry(Exception):
    """A failure that another attempt may cure; `wait_s` is what the host asked for, None = back off."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        self.wait_s = wait_s
        super().__init__(reason)


def base_url(provider: str, environment: Mapping[str, str]) -> str | None:
    """The private mirror that `COSTOPT_<PROVIDER>_BASE_URL` names, or None. Raises InvalidValue for other than
    https, or http on the loopback interface."""
    name = f"COSTOPT_{provider.upper()}_BASE_URL"
    value = environment.get(name, "").rstrip("/")
    if not value:
        return None
    parts = urlsplit(value)
    if not parts.hostname or parts.username or parts.query or parts.fragment:
        raise InvalidValue(name, value, "a mirror is written https://host[:port][/path]")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise InvalidValue(name, value, "a mirror must be https, or http on the loopback interface")
    return value


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Client:
    """The one way to a provider's hosts during one fetch; closes with the `with` block.

    `hosts` are the only ones that are asked; one that begins with a dot stands for its subdomains.
    Raises ProviderUnavailable (network, status, deadline) and InvalidAnswer (too large, of another kind, not JSON).
    """

    def __init__(self, provider: str, context: FetchContext, hosts: frozenset[str]) -> None:
        self._provider = provider
        self._context = context
        self._hosts = hosts
        self._mirror = base_url(provider, context.environment)
        self._session = _session(self._mirror)
        self._end = context.monotonic() + context.limits.total_s

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def sdk_session(self) -> "requests.Session":
        """A session for an SDK that takes one: its requests go through `send`, with all the bounds and retries."""
        import requests

        session = requests.Session()
        session.trust_env = False
        session.mount("https://", self.sdk_adapter())
        return session

    def sdk_adapter(self) -> "HTTPAdapter":
        """The adapter behind `sdk_session`, for an SDK that makes its own session."""
        import urllib3
        from requests.adapters import HTTPAdapter

        client = self

        class Adapter(HTTPAdapter):
            def send(
                self,
                request: "requests.PreparedRequest",
                stream: bool = False,
                timeout: object = None,
                verify: object = True,
                cert: object = None,
                proxies: object = None,
            ) -> "requests.Response":
                body = request.body
                reply = client.send(
                    request.method or "GET",
                    request.url or "",
                    headers=request.headers,
                    body=body.encode() if isinstance(body, str) else body,
                )
                headers = {name: text for name, text in reply.headers.items() if name not in _ABOUT_THE_TRANSFER}
                raw = urllib3.HTTPResponse(
                    body=BytesIO(reply.body), headers=headers, status=reply.status, preload_content=False
                )
                return self.build_response(request, raw)

        return Adapter()

    def json(
        self,
        method: str,
        url: str,
        *,
        params: Params = (),
        headers: Mapping[str, str] | None = None,
        payload: object = None,
        hint: str = "",
    ) -> Any:
        """The decoded JSON of a reply of status 200; numbers with a point are Decimal.

        `hint` says what the user can do about a refusal (401, 403).
        """
        body = None if payload is None else json.dumps(payload).encode()
        reply = self.send(method, url, params=params, headers=headers, body=body)
        if reply.status != 200:
            raise self._refusal(reply.status, hint)
        return self.decode(reply)

    def decode(self, reply: Reply) -> Any:
        """The JSON of a reply. Raises InvalidAnswer when it is none."""
        if "json" not in reply.content_type and "octet-stream" not in reply.content_type:
            kind = reply.content_type or "no content type"
            raise InvalidAnswer(self._provider, f"the reply is {kind} instead of JSON (a proxy or a sign-in page?)")
        try:
            return json.loads(reply.body, parse_float=Decimal, parse_constant=Decimal)
        except (ValueError, RecursionError) as error:
            raise InvalidAnswer(self._provider, f"the reply is not JSON ({type(error).__name__})") from None

    def send(
        self,
        method: str,
        url: str,
        *,
        params: Params = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """The reply of any status after retries of what another attempt may cure (network, 408, 429, 5xx)."""

        def once() -> Reply:
            with self._open(method, url, params, headers, body) as response:
                reply = Reply(response.status_code, _lower(response.headers), self._body(response))
            self._record(method, url, params, headers, body, reply)
            if reply.status in _RETRIED:
                raise _Retry(f"HTTP status {reply.status}", _retry_after(reply.headers, self._context.now))
            return reply

        return self._retrying(once)

    def lines(
        self,
        url: str,
        parse: Callable[[Iterator[str]], T],
        *,
        keep: Callable[[str], bool],
    ) -> T:
        """What `parse` makes of the lines of a large text file that `keep` wants; the file is never held whole.

        A broken transfer starts the file again with a new call of `parse`.
        """

        def once() -> T:
            with self._open("GET", url, (), None, None) as response:
                if response.status_code in _RETRIED:
                    wait_s = _retry_after(_lower(response.headers), self._context.now)
                    raise _Retry(f"HTTP status {response.status_code}", wait_s)
                if response.status_code != 200:
                    raise self._refusal(response.status_code, "")
                headers = _lower(response.headers)
                if "html" in headers.get("content-type", ""):
                    raise InvalidAnswer(self._provider, "the reply is HTML instead of a price file")
                kept: list[str] = []
                wanted = self._wanted(self._text_lines(response), keep, kept)
                result = parse(wanted)
                self._record("GET", url, (), None, None, Reply(200, headers, "\n".join(kept).encode()))
                return result

        return self._retrying(once)

    def pages(self, page: Callable[[str | None], tuple[T, str | None]]) -> Iterator[T]:
        """The pages from the first (`page(None)`) on, each call naming the next. Raises InvalidAnswer for a list
        that does not end: a token that was seen before, or more pages than the limit."""
        token: str | None = None
        seen: set[str] = set()
        for _ in range(self._context.limits.pages):
            found, token = page(token)
            yield found
            if not token:
                return
            if token in seen:
                raise InvalidAnswer(self._provider, "paging does not end: the same page is named twice")
            seen.add(token)
        raise InvalidAnswer(self._provider, f"paging does not end: more than {self._context.limits.pages} pages")

    def locate(self, url: str) -> str:
        """Where a request to `url` really goes: its own host, which must be one of the adapter's, or the mirror."""
        parts = urlsplit(url)
        if parts.scheme != "https" or not self._is_own(parts.hostname or "") or parts.port not in (None, 443):
            raise InvalidAnswer(self._provider, "the reply names a host that is not the provider's")
        if self._mirror is None:
            return urlunsplit(parts)
        mirror = urlsplit(self._mirror)
        path = mirror.path.rstrip("/") + parts.path
        return urlunsplit(SplitResult(mirror.scheme, mirror.netloc, path, parts.query, ""))

    def _is_own(self, host: str) -> bool:
        return any(host.endswith(own) if own.startswith(".") else host == own for own in self._hosts)

    def _seconds_left(self) -> float:
        """Seconds until the deadline. Raises ProviderUnavailable when it has passed."""
        left = self._end - self._context.monotonic()
        if left <= 0:
            raise ProviderUnavailable(self._provider, f"no answer within {self._context.limits.total_s:g} s")
        return left

    @contextmanager
    def _open(
        self, method: str, url: str, params: Params, headers: Mapping[str, str] | None, body: bytes | None
    ) -> Iterator["requests.Response"]:
        """The open reply; every failure of the network inside the block becomes one that can be tried again."""
        import requests
        import urllib3

        limits = self._context.limits
        left = self._seconds_left()
        target = self.locate(url)
        host = urlsplit(target).hostname
        try:
            with self._session.request(
                method,
                target,
                params=_pairs(params),
                headers=dict(headers or {}),
                data=body,
                timeout=(min(limits.connect_s, left), min(limits.read_s, left)),
                allow_redirects=False,
                stream=True,
            ) as response:
                if 300 <= response.status_code < 400:
                    raise InvalidAnswer(self._provider, "the reply is a redirect, which is not followed")
                yield response
        except requests.exceptions.SSLError:
            raise ProviderUnavailable(self._provider, f"the certificate of {host} cannot be verified") from None
        except (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError):
            raise _Retry(f"no reply of {host} in time") from None
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError):
            raise _Retry(f"the connection to {host} failed") from None

    def _body(self, response: "requests.Response") -> bytes:
        return b"".join(self._chunks(response, self._context.limits.reply_bytes))

    def _chunks(self, response: "requests.Response", most: int) -> Iterator[bytes]:
        """Decompressed pieces as they arrive, so that the deadline also ends a reply that drips. The limit is on what
        comes out: a small bomb is as bad as a large file."""
        total = 0
        while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            total += len(chunk)
            if total > most:
                raise InvalidAnswer(self._provider, f"the reply is larger than {most // 1024**2} MiB")
            self._seconds_left()
            yield chunk

    def _text_lines(self, response: "requests.Response") -> Iterator[str]:
        rest = b""
        for chunk in self._chunks(response, self._context.limits.streamed_bytes):
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LONGEST_LINE_BYTES:
                raise InvalidAnswer(self._provider, "the price file has a line of more than 1 MiB")
            for line in whole:
                yield line.decode("utf-8", "replace").rstrip("\r")
        if rest:
            yield rest.decode("utf-8", "replace").rstrip("\r")

    def _wanted(self, lines: Iterator[str], keep: Callable[[str], bool], kept: list[str]) -> Iterator[str]:
        """The lines to keep; a recording holds those and no others."""
        recording = self._context.recorder is not None
        for line in lines:
            if keep(line):
                if recording:
                    kept.append(line)
                yield line

    def _retrying(self, once: Callable[[], T]) -> T:
        limits = self._context.limits
        for attempt in range(1, limits.attempts + 1):
            try:
                return once()
            except _Retry as failure:
                if attempt == limits.attempts:
                    raise ProviderUnavailable(self._provider, f"{failure} ({attempt} attempts)") from None
                wait_s = failure.wait_s if failure.wait_s is not None else _FIRST_WAIT_S * 2 ** (attempt - 1)
                if wait_s > min(limits.longest_wait_s, self._seconds_left()):
                    raise ProviderUnavailable(
                        self._provider, f"{failure}, to be tried again in {wait_s:.0f} s only"
                    ) from None
                self._context.sleep(wait_s)
        raise AssertionError("an attempt returns or raises")

    def _refusal(self, status: int, hint: str) -> ProviderUnavailable:
        if status in (401, 403):
            said = "the credentials are not accepted" if status == 401 else "access is refused"
            return CredentialsRefused(self._provider, "; ".join(filter(None, [f"HTTP status {status}: {said}", hint])))
        return ProviderUnavailable(self._provider, f"HTTP status {status}")

    def _record(
        self,
        method: str,
        url: str,
        params: Params,
        headers: Mapping[str, str] | None,
        body: bytes | None,
        reply: Reply,
    ) -> None:
        if self._context.recorder is None or urlsplit(url).hostname in _SIGN_IN_HOSTS:
            return
        self._context.recorder.keep(
            provider=self._provider,
            method=method,
            url=url,
            params=_pairs(params),
            request_headers=dict(headers or {}),
            request_body=body or b"",
            status=reply.status,
            headers=reply.headers,
            body=reply.body,
        )


def _session(mirror: str | None) -> "requests.Session":
    """A session that verifies certificates, and takes proxies but no passwords from the environment."""
    import requests

    session = requests.Session()
    session.headers.update({"User-Agent": _USER_AGENT, "Accept-Encoding": "gzip", "Accept": "application/json, */*"})
    session.auth = _no_auth
    if mirror is not None and is_loopback(urlsplit(mirror).hostname or ""):
        session.trust_env = False
    return session


def _no_auth(request: "requests.PreparedRequest") -> "requests.PreparedRequest":
    """Without this, a line of ~/.netrc would replace the provider's own Authorization header."""
    return request


def _pairs(params: Params) -> list[tuple[str, str]]:
    return list(params.items()) if isinstance(params, Mapping) else list(params)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that the host asks to wait (a number or a date), or None."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds())
