"""Turns the exchanges of a fetch into files that can be replayed: secrets scrubbed, headers allow-listed."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Final
from urllib.parse import parse_qsl, urlsplit

_KEPT_HEADERS: Final = frozenset({"content-type", "retry-after", "ratelimit", "ratelimit-policy"})
_KEPT_REQUEST_HEADERS: Final = frozenset({"content-type", "x-amz-target"})
_VOLATILE: Final = frozenset({"StartTime", "EndTime", "StartDateRange", "EndDateRange", "key", "access_token"})
"""Parameters that differ between two runs of the same fetch, or that are secret."""

_SECRET_NAME: Final = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|ACCOUNT|CLIENT|TENANT|SUBSCRIPTION|PROJECT")
_SHORTEST_SECRET: Final = 6
_SCRUBBED: Final = "SCRUBBED"
_PROJECT: Final = "PROJECT"
_ZERO_GUID: Final = "00000000-0000-0000-0000-000000000000"
_GUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_ACCOUNTS: Final = (
    (re.compile(r"(?<![\w.-])\d{12}(?![\w.])"), "000000000000"),
    (re.compile(rf"(subscriptions/){_GUID.pattern}"), rf"\g<1>{_ZERO_GUID}"),
    (re.compile(r"(projects/)[a-z][a-z0-9.:-]{4,}"), rf"\g<1>{_PROJECT}"),
)
"""AWS account numbers, Azure subscriptions, Google projects."""


class Recorder:
    """Writes what one `costopt refresh --record DIR` receives: `DIR/<provider>/NNNN.json`, one exchange a file.

    `environment` holds the secrets that must not appear: the value of every variable that is named like one.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        secrets = {
            value: _stand_in(name, value)
            for name, value in environment.items()
            if _SECRET_NAME.search(name.upper()) and len(value) >= _SHORTEST_SECRET and not value.startswith("/")
        }
        self._secrets = sorted(secrets.items(), key=lambda secret: len(secret[0]), reverse=True)
        self._written: dict[str, int] = {}
        self._lock = Lock()

    def keep(
        self,
        *,
        provider: str,
        method: str,
        url: str,
        params: Sequence[tuple[str, str]],
        request_headers: Mapping[str, str],
        request_body: bytes,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Path:
        """Writes one exchange and returns its file."""
        parts = urlsplit(url)
        query = [*parse_qsl(parts.query, keep_blank_values=True), *params]
        exchange = {
            "request": {
                "method": method,
                "path": self._scrub(parts.path),
                "query": [[name, self._scrub(value)] for name, value in query if name not in _VOLATILE],
                "headers": _allowed(request_headers, _KEPT_REQUEST_HEADERS),
                "body": self._scrub(request_body.decode("utf-8", "replace")),
            },
            "response": {
                "status": status,
                "headers": _allowed(headers, _KEPT_HEADERS),
                "body": self._scrub(body.decode("utf-8", "replace")),
            },
        }
        with self._lock:
            number = self._written[provider] = self._written.get(provider, 0) + 1
        path = self.folder / provider / f"{number:04d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(exchange, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path

    def _scrub(self, text: str) -> str:
        for secret, stand_in in self._secrets:
            text = text.replace(secret, stand_in)
        for pattern, replacement in _ACCOUNTS:
            text = pattern.sub(replacement, text)
        return text


def signature(
    method: str, path: str, query: Iterable[tuple[str, str]], headers: Mapping[str, str], body: str
) -> tuple[str, ...]:
    """What two requests for the same thing have in common: a replay answers by it."""
    pairs = sorted(f"{name}={value}" for name, value in query if name not in _VOLATILE)
    form = headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    if form:
        fields = parse_qsl(body, keep_blank_values=True)
        body = "&".join(sorted(f"{name}={value}" for name, value in fields if name not in _VOLATILE))
    return method, path, "&".join(pairs), headers.get("x-amz-target", ""), body


def _stand_in(name: str, value: str) -> str:
    """What is written for a secret: for an id something of its form, so that a replay can ask for it."""
    if _GUID.fullmatch(value):
        return _ZERO_GUID
    return _PROJECT if "PROJECT" in name.upper() else _SCRUBBED


def _allowed(headers: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() in names}
