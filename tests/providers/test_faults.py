"""What goes wrong between a provider and us, with each adapter: good rows land, bad ones are counted, and a reply that
is no answer is an error that leaves earlier prices alone."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from providers.azure import ADAPTER as AZURE
from providers.base import Answer, FetchContext, Limits, Provider
from providers.errors import InvalidAnswer, ProviderError, ProviderUnavailable
from providers.gcp import ADAPTER as GCP
from providers.lambda_cloud import ADAPTER as LAMBDA
from providers.runpod import ADAPTER as RUNPOD
from tests.providers import test_azure, test_gcp, test_lambda_cloud, test_runpod
from tests.providers.conftest import ContextFor, Serve, Waits
from tests.providers.server import HANG, RESET, Asked, Script, Served


@dataclass(frozen=True)
class Subject:
    """An adapter, a reply with `rows` of which each gives one on-demand offer, and how its fields are spoiled."""

    adapter: Provider
    environment: dict[str, str]
    reply: Callable[[list[Any]], Any]
    row: Callable[[int], Any]
    set_price: Callable[[Any, Any], None]
    set_currency: Callable[[Any], None] | None
    drop_field: Callable[[Any], None]


def lambda_row(number: int) -> Any:
    return test_lambda_cloud.entry(name=f"gpu_1x_a10_{number}")


def azure_row(number: int) -> Any:
    return test_azure.item(armRegionName=f"region{number}")


def set_lambda_price(row: Any, price: Any) -> None:
    row["instance_type"]["price_cents_per_hour"] = price


def drop_lambda_specs(row: Any) -> None:
    del row["instance_type"]["specs"]


def set_runpod_price(row: Any, price: Any) -> None:
    row["price"] = {"secure": price}


SUBJECTS = {
    "lambda": Subject(
        LAMBDA,
        {"LAMBDA_API_KEY": "a-secret-key"},
        lambda rows: {"data": {f"gpu_1x_a10_{number}": row for number, row in enumerate(rows)}},
        lambda_row,
        set_lambda_price,
        None,
        drop_lambda_specs,
    ),
    "azure": Subject(
        AZURE,
        {},
        lambda rows: {"Items": rows, "NextPageLink": None},
        azure_row,
        lambda row, price: row.update(retailPrice=price),
        lambda row: row.update(currencyCode="EUR"),
        lambda row: row.pop("armRegionName"),
    ),
    "runpod": Subject(
        RUNPOD,
        {"RUNPOD_API_KEY": "a-secret-key"},
        lambda rows: {"gpus": rows},
        lambda number: test_runpod.gpu(id=f"NVIDIA L4 {'GPU ' * number}", community=False, maxCount={"secure": 1}),
        set_runpod_price,
        None,
        lambda row: row.pop("price"),
    ),
}

every_subject = pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)


def answer_of(subject: Subject, rows: list[Any], serve: Serve, context_for: ContextFor) -> Answer:
    def respond(asked: Asked) -> Served:
        if "'Reservation'" in (asked.param("$filter") or ""):
            return Served.json(subject.reply([]))
        return Served.json(subject.reply(rows))

    return subject.adapter.fetch(context_for(subject.adapter.name, serve(respond), **subject.environment))


@every_subject
def test_a_field_that_is_missing_in_one_row_of_many_costs_that_row(
    subject: Subject, serve: Serve, context_for: ContextFor
) -> None:
    rows = [subject.row(number) for number in range(60)]
    subject.drop_field(rows[30])
    answer = answer_of(subject, rows, serve, context_for)
    assert len(answer.offers) == 59
    assert set(answer.rejections) == {"row of another shape"}


@every_subject
@pytest.mark.parametrize(
    ("price", "reason"),
    [
        (float("nan"), "price is not a number"),
        (float("inf"), "price is not a number"),
        (-1.5, "negative price"),
        (0, "price of zero"),
        (None, "no price"),
        ("a lot", "price is not a number"),
        ([1], "price is not a number"),
        (10**12, "price of less than 0.000001 or more than 1000000 USD per hour"),
    ],
)
def test_a_price_that_cannot_be_one_costs_that_row_and_keeps_its_earlier_price(
    subject: Subject, price: Any, reason: str, serve: Serve, context_for: ContextFor
) -> None:
    rows = [subject.row(number) for number in range(3)]
    subject.set_price(rows[1], price)
    answer = answer_of(subject, rows, serve, context_for)
    assert len(answer.offers) == 2
    assert set(answer.rejections) == {reason}
    [kept] = answer.unreadable
    assert not answer.supersedes(kept)


@pytest.mark.parametrize("name", ["azure"])
def test_another_currency_costs_that_row(name: str, serve: Serve, context_for: ContextFor) -> None:
    subject = SUBJECTS[name]
    rows = [subject.row(number) for number in range(3)]
    assert subject.set_currency is not None
    subject.set_currency(rows[0])
    answer = answer_of(subject, rows, serve, context_for)
    assert len(answer.offers) == 2
    assert answer.rejections == {"price in EUR, not USD": 1}


BROKEN = {
    "truncated JSON": Served.json('{"data": {"gpu_1x'),
    "HTML": Served(b"<html>sign in</html>", 200, {"Content-Type": "text/html"}),
    "JSON as text": Served(b"{}", 200, {"Content-Type": "text/plain"}),
    "another shape": Served.json([]),
    "a bomb": Served(
        gzip.compress(b" " * 8 * 1024**2), 200, {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    ),
    "a redirect": Served(b"", 301, {"Location": "https://elsewhere.example"}),
    "nothing": Served.json({}),
    "no server": Served.json({}, status=500),
    "a reset": RESET,
    "silence": HANG,
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("name", ["lambda", "runpod", "azure", "gcp", "aws"])
def test_a_reply_that_is_no_answer_is_an_error_of_that_provider(
    name: str, broken: Served, serve: Serve, context_for: ContextFor
) -> None:
    from providers.base import provider

    environment = {"LAMBDA_API_KEY": "k" * 8, "RUNPOD_API_KEY": "k" * 8, "GCP_API_KEY": "k" * 8}
    context = context_for(name, serve(Script(broken)), **environment)
    small = replace(context, limits=Limits(read_s=0.05, attempts=2, reply_bytes=1024**2))
    with pytest.raises(ProviderError) as failure:
        provider(name).fetch(small)
    assert isinstance(failure.value, InvalidAnswer | ProviderUnavailable)
    assert "kkkkkkkk" not in str(failure.value)


@pytest.mark.parametrize("first", [RESET, Served.json({}, status=500), Served.json({}, status=429, Retry_After="2")])
@every_subject
def test_a_failure_that_passes_changes_nothing(
    subject: Subject, first: Served, serve: Serve, context_for: ContextFor, waits: Waits
) -> None:
    calls = count()

    def respond(asked: Asked) -> Served:
        if next(calls) == 0:
            return first
        return Served.json(subject.reply([] if "'Reservation'" in (asked.param("$filter") or "") else [subject.row(0)]))

    answer = subject.adapter.fetch(context_for(subject.adapter.name, serve(respond), **subject.environment))
    assert len(answer.offers) == 1
    assert answer.notes == () or subject.adapter.name == "azure"
    assert waits.waited == [2 if first.status == 429 else 1]


def test_a_page_that_comes_twice_counts_once(serve: Serve, context_for: ContextFor) -> None:
    page = {"Items": [azure_row(number) for number in range(5)]}
    link = "https://prices.azure.com/api/retail/prices?$skip={}"
    pages = [page | {"NextPageLink": link.format(skip)} for skip in (5, 10)] + [page, {"Items": []}]
    answer = AZURE.fetch(context_for("azure", serve(Script(*[Served.json(page) for page in pages]))))
    assert len(answer.offers) == 5
    assert answer.rejections == {"same offer twice": 10}


def test_pages_without_end_are_refused(serve: Serve, context_for: ContextFor) -> None:
    numbers = count()

    def endless(asked: Asked) -> Served:
        return Served.json({"skus": [], "nextPageToken": f"page{next(numbers)}"})

    context = context_for("gcp", serve(endless), GCP_API_KEY="a-secret-key")
    with pytest.raises(InvalidAnswer, match="paging does not end"):
        GCP.fetch(replace(context, limits=Limits(pages=7)))


def test_the_deadline_ends_a_fetch_of_many_pages(serve: Serve, context_for: ContextFor) -> None:
    numbers, seconds = count(), count()

    def endless(asked: Asked) -> Served:
        return Served.json({"skus": [test_gcp.A100], "nextPageToken": f"page{next(numbers)}"})

    context: FetchContext = context_for("gcp", serve(endless), GCP_API_KEY="a-secret-key")
    slow = replace(context, monotonic=lambda: float(next(seconds)), limits=Limits(total_s=30))
    with pytest.raises(ProviderUnavailable, match="no answer within 30 s"):
        GCP.fetch(slow)


def test_the_cases_above_spoil_what_is_good_otherwise(serve: Serve, context_for: ContextFor) -> None:
    for subject in SUBJECTS.values():
        answer = answer_of(subject, [subject.row(number) for number in range(3)], serve, context_for)
        assert (len(answer.offers), answer.rejections) == (3, {})
        assert json.dumps(sorted(str(offer.key) for offer in answer.offers))
