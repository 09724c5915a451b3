"""Asks providers for live prices with the process's own environment, clock and terminal."""

import os
from collections.abc import Iterable, Sequence

from optimizer.api.choices import one_of
from optimizer.api.clock import now
from optimizer.cli import refresh_output
from optimizer.cli.streams import say
from pricing_cache.location import locate
from pricing_cache.refresh import Result, refresh
from providers.base import FetchContext
from providers.errors import CacheError
from providers.offers import PROVIDERS
from providers.recorder import Recorder


def refresh_prices(
    providers: Iterable[str], *, recorder: Recorder | None = None, accept: bool = False, quiet: bool = False
) -> tuple[Result, ...]:
    """Refreshes those providers, or all when none is named, with progress on a terminal.

    Raises UnknownName for a provider that nobody knows, CacheError when the cache cannot be kept.
    """
    names = [one_of("provider", name, PROVIDERS) for name in dict.fromkeys(providers)] or list(PROVIDERS)
    moment = now()
    with refresh_output.progress(names, quiet=quiet) as show:
        return refresh(
            locate(os.environ),
            names,
            lambda name: FetchContext(environment=os.environ, now=moment, progress=show(name), recorder=recorder),
            accept=accept,
            on_result=lambda result: show(result.provider)(result.outcome),
        )


def refresh_before_planning(providers: Sequence[str], *, quiet: bool) -> None:
    """Refreshes and says on standard error what came of it; where the cache cannot be kept, warns and goes on."""
    try:
        results = refresh_prices(providers, quiet=quiet)
    except CacheError as error:
        say([f"warning: prices were not refreshed: {error}"], quiet=quiet)
        return
    say(refresh_output.outcomes(results), quiet=quiet)
    say(refresh_output.remarks(results, verbose=False), quiet=quiet)
