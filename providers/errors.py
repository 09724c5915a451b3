"""The one error tree. Every message says what, why with the value, and what to do next.

CostoptError
├── UsageError                   the command, a file or a name is wrong            (exit 2)
│   ├── UnknownName              a model, accelerator, region … that nobody knows, with suggestions
│   └── InvalidValue             a value outside its domain
├── NoUsablePrices               nothing to plan on                                 (exit 4)
├── CacheError                   the price cache cannot be read or written          (exit 2)
├── ProviderError                one provider's refresh failed; the others go on
│   ├── MissingCredentials       skipped: says which variable to set
│   ├── ProviderUnavailable      network, HTTP status, deadline
│   │   └── CredentialsRefused   HTTP 401 or 403: the key is wrong or lacks a permission
│   └── InvalidAnswer            the reply is not what the API promises
└── SolverError                  the solver failed or returned an answer that breaks a constraint
"""

import copyreg
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Final

_MOST_SHOWN: Final = 200
"""Characters of a value in a message."""


class CostoptError(Exception):
    """Root of everything that costopt raises on purpose; `str()` is fit for a user."""

    def __reduce__(self) -> tuple[Any, ...]:
        """An error from another process is what it was there: without this, it would be made from its message alone."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]  # not in the stubs


class UsageError(CostoptError):
    """The request cannot be understood as given."""


class UnknownName(UsageError):
    """A name that is in no table, with the nearest known names."""

    def __init__(self, kind: str, value: str, suggestions: Sequence[str] = (), hint: str = "") -> None:
        self.kind = kind
        self.value = value
        self.suggestions = tuple(suggestions)
        parts = [f"unknown {kind} {value!r}"]
        if self.suggestions:
            parts.append("did you mean " + ", ".join(self.suggestions) + "?")
        if hint:
            parts.append(hint)
        super().__init__("; ".join(parts))


class InvalidValue(UsageError):
    """A value outside its domain: what it is, the value, and what would do."""

    def __init__(self, what: str, value: object, hint: str) -> None:
        self.what = what
        self.value = value
        self.hint = hint
        written = repr(value)
        shown = written if len(written) <= _MOST_SHOWN else f"{written[:_MOST_SHOWN]}…"
        super().__init__(f"{what} {shown}: {hint}")


class NoUsablePrices(CostoptError):
    """No offer is left to plan on."""


class CacheError(CostoptError):
    """The price cache cannot be read or written."""


class ProviderError(CostoptError):
    """One provider's prices could not be fetched."""

    def __init__(self, provider: str, message: str) -> None:
        self.provider = provider
        super().__init__(f"{provider}: {message}")


class MissingCredentials(ProviderError):
    """The provider needs credentials that are not set: it is skipped, not failed."""


class ProviderUnavailable(ProviderError):
    """Network failure, refused status or deadline."""


class CredentialsRefused(ProviderUnavailable):
    """The provider does not accept the credentials, or they lack a permission."""


class InvalidAnswer(ProviderError):
    """The reply does not have the shape that the provider's API promises."""


class SolverError(CostoptError):
    """The solver failed, or its answer breaks a constraint when re-checked."""


def nearest(value: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The known names closest to `value`, compared without case, best first."""
    by_lower = {name.lower(): name for name in known}
    return tuple(by_lower[match] for match in get_close_matches(value.lower(), by_lower, n=limit, cutoff=0.5))
