"""The recorder: what it writes gives the same answer when replayed, and holds no secret."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from providers.aws import ADAPTER as AWS
from providers.azure import ADAPTER as AZURE
from providers.base import Answer, Provider
from providers.gcp import Gcp
from providers.lambda_cloud import ADAPTER as LAMBDA
from providers.recorder import Recorder, signature
from providers.runpod import ADAPTER as RUNPOD
from tests.providers import test_aws, test_azure, test_gcp
from tests.providers.conftest import ContextFor, Recorded, Serve
from tests.providers.server import Asked, LocalServer, Replay, Respond, Script, Served

KEYS = {"LAMBDA_API_KEY": "lambda-secret-key", "RUNPOD_API_KEY": "runpod-secret-key"}
Case = tuple[Provider, Callable[[Recorded], Respond], Mapping[str, str]]


def gcp_server(recorded: Recorded) -> Respond:
    names = (test_gcp.SKUS, test_gcp.MACHINES, test_gcp.CARDS)
    return test_gcp.GoogleServer(*[recorded(name) for name in names])


def azure_server(recorded: Recorded) -> Respond:
    skus = recorded("azure/resource_skus_list.json")
    del skus["nextLink"]
    page = recorded(test_azure.PAGE) | {"NextPageLink": None}
    page["Items"].append(test_azure.item(armRegionName="southcentralus"))
    return test_azure.AzureServer(page, recorded(test_azure.LAST), skus)


CASES: dict[str, Case] = {
    "lambda": (LAMBDA, lambda recorded: Script(Served.json(recorded("lambda/instance-types.200.json"))), KEYS),
    "runpod": (
        RUNPOD,
        lambda recorded: Script(Served.json(recorded("runpod/v2.catalog.gpus.availability.200.json"))),
        KEYS,
    ),
    "azure": (AZURE, azure_server, test_azure.SIGN_IN),
    "gcp": (Gcp(sign_in=test_gcp.signed_in), gcp_server, {}),
    "aws without credentials": (AWS, lambda _: test_aws.public_server(), {}),
    "aws with an account": (AWS, test_aws.account_server, test_aws.KEYS),
}


@pytest.fixture(params=CASES)
def recording(
    request: pytest.FixtureRequest, recorded: Recorded, serve: Serve, context_for: ContextFor, tmp_path: Path
) -> tuple[Provider, Mapping[str, str], Answer, Path]:
    """One provider, recorded from a server: adapter, environment, answer, folder."""
    adapter, make, environment = CASES[request.param]
    context = context_for(adapter.name, serve(make(recorded)), **environment)
    recorder = Recorder(tmp_path / "recording", context.environment)
    answer = adapter.fetch(replace(context, recorder=recorder))
    return adapter, environment, answer, tmp_path / "recording" / adapter.name


def test_a_recording_gives_the_same_answer_again(
    recording: tuple[Provider, Mapping[str, str], Answer, Path], serve: Serve, context_for: ContextFor
) -> None:
    adapter, environment, answer, folder = recording
    replay, sign_in = Replay(folder), test_azure.AzureServer(None, None)

    def respond(asked: Asked) -> Served:
        """Signing in is never recorded."""
        return sign_in(asked) if test_azure.is_sign_in(asked) else replay(asked)

    again = adapter.fetch(context_for(adapter.name, serve(respond), **environment))
    assert again == answer
    assert answer.offers


def test_a_recording_holds_no_secret(recording: tuple[Provider, Mapping[str, str], Answer, Path]) -> None:
    _, environment, _, folder = recording
    text = "".join(path.read_text(encoding="utf-8") for path in folder.iterdir())
    secrets = [value for value in environment.values() if not set(value) <= set("0-")]
    assert not [secret for secret in secrets if secret in text]
    assert "uthorization" not in text
    assert "a-token" not in text


def test_secrets_and_account_numbers_are_scrubbed_and_headers_are_listed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, {"SOME_API_KEY": "hidden-value", "HOME": "/root", "SHORT_KEY": "abc"})
    path = recorder.keep(
        provider="aws",
        method="GET",
        url="https://compute.googleapis.com/compute/v1/projects/my-project-7/aggregated/machineTypes?key=hidden-value",
        params=[("page", "2"), ("key", "another"), ("owner", "hidden-value")],
        request_headers={"Authorization": "Bearer x", "X-Amz-Target": "T", "Content-Type": "a/b", "Cookie": "c"},
        request_body=b"arn:aws:iam::123456789012:user/x",
        status=200,
        headers={"content-type": "application/json", "set-cookie": "s", "retry-after": "3", "x-request-id": "r"},
        body=b'{"/subscriptions/0A1b2c3d-1111-2222-3333-444455556666/x": "hidden-value", "n": 20260716203612}',
    )
    exchange = json.loads(path.read_text(encoding="utf-8"))
    assert exchange == {
        "request": {
            "method": "GET",
            "path": "/compute/v1/projects/PROJECT/aggregated/machineTypes",
            "query": [["page", "2"], ["owner", "SCRUBBED"]],
            "headers": {"x-amz-target": "T", "content-type": "a/b"},
            "body": "arn:aws:iam::000000000000:user/x",
        },
        "response": {
            "status": 200,
            "headers": {"content-type": "application/json", "retry-after": "3"},
            "body": '{"/subscriptions/00000000-0000-0000-0000-000000000000/x": "SCRUBBED", "n": 20260716203612}',
        },
    }
    assert path == tmp_path / "aws" / "0001.json"


def test_two_requests_for_the_same_are_known_by_what_does_not_change() -> None:
    form = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    first = signature("POST", "/", [("b", "2"), ("a", "1"), ("key", "x")], form, "Action=D&StartTime=1&Max=5")
    again = signature("POST", "/", [("a", "1"), ("b", "2")], form, "Max=5&Action=D&StartTime=2")
    other = signature("POST", "/", [("a", "1"), ("b", "2")], form, "Max=6&Action=D&StartTime=2")
    assert first == again
    assert first != other


def test_what_was_not_recorded_is_not_found(serve: Serve, context_for: ContextFor, tmp_path: Path) -> None:
    from providers.errors import ProviderUnavailable

    server: LocalServer = serve(Replay(tmp_path))
    with pytest.raises(ProviderUnavailable, match="HTTP status 404"):
        LAMBDA.fetch(context_for("lambda", server, **KEYS))
