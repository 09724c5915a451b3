"""Turns providers' live answers into runs of the cache: asks them side by side, judges and keeps each by itself."""

import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from pricing_cache.current import load_current, merged, rebuild
from pricing_cache.location import CacheLocation
from pricing_cache.observations import (
    Outcome,
    Run,
    append_answer,
    append_refused,
    append_run,
    last_stored_run,
    read_state,
)
from pricing_cache.quarantine import Held, Verdict, far_off_others, judge
from pricing_cache.snapshot import snapshot
from pricing_cache.store import Store, open_store
from providers.base import Answer, FetchContext, Provider, provider
from providers.errors import CostoptError, MissingCredentials
from providers.offers import Offer, OfferKey

GRACE_S: Final = 30.0
"""Beyond a fetch's own deadline, before its thread is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Offers by what became of them, against those in use before."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    gone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one provider's refresh.

    `message` says why nothing was stored. `held` were kept apart one by one, `accepted` are the rules that a person
    overrode, `rejections` counts rows of the reply by the reason why they could not be read.
    """

    provider: str
    outcome: Outcome
    duration_s: float
    message: str = ""
    changes: Changes = Changes()
    held: Mapping[OfferKey, Held] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    rejections: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def refresh(
    location: CacheLocation,
    names: Sequence[str],
    context_of: Callable[[str], FetchContext],
    *,
    adapter_of: Callable[[str], Provider] = provider,
    accept: bool = False,
    on_result: Callable[[Result], None] = lambda _: None,
) -> tuple[Result, ...]:
    """Asks the named providers side by side and keeps each answer in its own transaction; results in the order asked.

    `context_of` gives each provider's fetch its context, `on_result` hears each result as it is there. One
    provider's failure touches nobody else, and its last good prices stay. The compiled file is made at the end.
    Raises CacheError, before anybody is asked, when the cache cannot be kept.
    """
    contexts = {name: context_of(name) for name in names}
    results: dict[str, Result] = {}
    with open_store(location) as store:
        market = load_current(location).offers
        for fetched in _fetched(contexts, adapter_of):
            result = _keep(store, fetched, contexts[fetched.provider].now, accept=accept, market=market)
            results[result.provider] = result
            on_result(result)
    if any(result.outcome is Outcome.STORED for result in results.values()):
        rebuild(location)
    return tuple(results[name] for name in names)


def keep_answer(
    store: Store,
    answer: Answer,
    *,
    at: datetime,
    duration_s: float = 0.0,
    accept: bool = False,
    market: Iterable[Offer] = (),
) -> Result:
    """Judges one answer against the cache and keeps it, used or apart, in one transaction.

    `market` has the offers in use of all providers; an answer far from the others' gets a warning.
    """
    floor = [offer for offer in snapshot().offers if offer.provider == answer.provider]
    with store.writing() as (connection, run_id):
        state = read_state(connection, provider=answer.provider)
        last = last_stored_run(connection, answer.provider)
        quoted = {key: quote.offer for key, quote in state.quotes.items()}
        verdict = judge(answer, quoted, last.instance_types_seen if last else None, accept=accept)
        run = _run(answer, verdict, run_id=run_id, at=at, duration_s=duration_s)
        if verdict.refusal:
            append_refused(connection, run, verdict, state=state)
            changes = Changes()
        else:
            before = {offer.key: offer for offer in merged(state, floor)}
            listed = verdict.usable.keys() | verdict.held.keys()
            departed = [key for key in before if key not in listed and answer.supersedes(key)]
            append_answer(connection, run, verdict, coverage=answer.coverage, departed=departed, state=state)
            changes = _changes(before, verdict.usable, gone=len(departed))
    others = (offer for offer in market if offer.provider != answer.provider)
    return Result(
        provider=answer.provider,
        outcome=run.outcome,
        duration_s=duration_s,
        message=run.message,
        changes=changes,
        held=verdict.held,
        accepted=verdict.accepted,
        rejections=answer.rejections,
        notes=answer.notes,
        warnings=far_off_others(verdict.usable.values(), others),
    )


def _run(answer: Answer, verdict: Verdict, *, run_id: int, at: datetime, duration_s: float) -> Run:
    return Run(
        id=run_id,
        provider=answer.provider,
        at=at,
        outcome=Outcome.REFUSED if verdict.refusal else Outcome.STORED,
        duration_s=duration_s,
        message=verdict.refusal,
        instance_types_seen=answer.instance_types_seen,
        rejections=answer.rejections,
        notes=answer.notes,
        sources=answer.sources,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    """What one provider's thread brought back."""

    provider: str
    duration_s: float
    answer: Answer | None = None
    outcome: Outcome = Outcome.FAILED
    message: str = ""


def _fetched(contexts: Mapping[str, FetchContext], adapter_of: Callable[[str], Provider]) -> Iterable[_Fetched]:
    """What each provider answers, in the order of their answers.

    The threads are daemons: an interrupt, or a fetch beyond its deadline, does not have to wait for a socket.
    """
    arrived: SimpleQueue[_Fetched] = SimpleQueue()
    started = time.monotonic()
    for name, context in contexts.items():
        arguments = (name, context, adapter_of, arrived)
        threading.Thread(target=_fetch, args=arguments, name=f"refresh-{name}", daemon=True).start()
    waiting = set(contexts)
    longest_s = max((context.limits.total_s for context in contexts.values()), default=0.0) + GRACE_S
    while waiting:
        try:
            fetched = arrived.get(timeout=max(0.0, started + longest_s - time.monotonic()))
        except Empty:
            for name in sorted(waiting):
                yield _Fetched(provider=name, duration_s=longest_s, message=f"no answer within {longest_s:.0f} s")
            return
        waiting.remove(fetched.provider)
        yield fetched


def _fetch(
    name: str, context: FetchContext, adapter_of: Callable[[str], Provider], arrived: "SimpleQueue[_Fetched]"
) -> None:
    started = time.monotonic()
    answer, outcome, message = None, Outcome.FAILED, ""
    try:
        answer = adapter_of(name).fetch(context)
    except MissingCredentials as error:
        outcome, message = Outcome.SKIPPED, str(error)
    except CostoptError as error:
        message = str(error)
    except Exception as error:  # an adapter's fault must not take the others down; its text may quote a key
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}; please report it"
    took = time.monotonic() - started
    arrived.put(_Fetched(provider=name, duration_s=took, answer=answer, outcome=outcome, message=message))


def _keep(store: Store, fetched: _Fetched, at: datetime, *, accept: bool, market: Iterable[Offer]) -> Result:
    if fetched.answer is not None:
        return keep_answer(store, fetched.answer, at=at, duration_s=fetched.duration_s, accept=accept, market=market)
    message = fetched.message.removeprefix(f"{fetched.provider}: ")
    with store.writing() as (connection, run_id):
        append_run(
            connection,
            Run(
                id=run_id,
                provider=fetched.provider,
                at=at,
                outcome=fetched.outcome,
                duration_s=fetched.duration_s,
                message=message,
            ),
        )
    return Result(provider=fetched.provider, outcome=fetched.outcome, duration_s=fetched.duration_s, message=message)


def _changes(before: Mapping[OfferKey, Offer], now: Mapping[OfferKey, Offer], *, gone: int) -> Changes:
    known = now.keys() & before.keys()
    changed = sum(now[key].usd_per_hour != before[key].usd_per_hour for key in known)
    return Changes(new=len(now) - len(known), changed=changed, unchanged=len(known) - changed, gone=gone)
