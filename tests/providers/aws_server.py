"""Turns replies in boto3's shape into an AWS on the loopback interface, in the wire's own formats (EC2 answers XML)."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from tests.providers.server import Asked, Served

Reply = Mapping[str, Any] | Served | Callable[[Mapping[str, str]], Mapping[str, Any] | Served]


class AwsServer:
    """Answers each operation with a reply in boto3's shape, and each path of the public lists with a text."""

    def __init__(self, operations: Mapping[str, Reply] | None = None, files: Mapping[str, str] | None = None) -> None:
        self.operations = dict(operations or {})
        self.files = dict(files or {})

    def __call__(self, asked: Asked) -> Served:
        if asked.method == "GET":
            text = self.files.get(asked.path)
            kind = "text/csv" if asked.path.endswith(".csv") else "application/json"
            return (
                Served(text.encode(), 200, {"Content-Type": kind}) if text is not None else Served.json({}, status=404)
            )
        target = asked.headers.get("x-amz-target", "")
        if target:
            return self._json(target.rpartition(".")[2], json.loads(asked.body))
        if asked.path.startswith("/Describe"):
            return self._json(asked.path[1:], json.loads(asked.body))
        fields = dict(parse_qsl(asked.body))
        return self._xml(fields["Action"], fields)

    def _reply(self, operation: str, fields: Mapping[str, Any]) -> Mapping[str, Any] | Served:
        reply = self.operations.get(operation, {})
        return reply(fields) if callable(reply) else reply

    def _json(self, operation: str, fields: Mapping[str, Any]) -> Served:
        reply = self._reply(operation, fields)
        return reply if isinstance(reply, Served) else Served.json(reply)

    def _xml(self, operation: str, fields: Mapping[str, str]) -> Served:
        reply = self._reply(operation, fields)
        if isinstance(reply, Served):
            return reply
        shape = _ec2_model().operation_model(operation).output_shape
        body = f"<{operation}Response><requestId>0</requestId>{_members(reply, shape)}</{operation}Response>"
        return Served(body.encode(), 200, {"Content-Type": "text/xml;charset=UTF-8"})


def ec2_error(code: str, status: int = 403) -> Served:
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>no</Message></Error></Errors></Response>"
    return Served(body.encode(), status, {"Content-Type": "text/xml"})


def json_error(code: str, status: int = 400) -> Served:
    return Served.json({"__type": code, "message": "no"}, status=status)


@cache
def _ec2_model() -> Any:
    import botocore.session

    return botocore.session.Session().get_service_model("ec2")


def _members(value: Mapping[str, Any], shape: Any) -> str:
    return "".join(_element(value[name], member, name) for name, member in shape.members.items() if name in value)


def _element(value: Any, shape: Any, name: str) -> str:
    tag = shape.serialization.get("name", name)
    if shape.type_name == "structure":
        return f"<{tag}>{_members(value, shape)}</{tag}>"
    if shape.type_name == "list":
        return f"<{tag}>{''.join(_items(value, shape))}</{tag}>"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"<{tag}>{escape(text)}</{tag}>"


def _items(values: Iterable[Any], shape: Any) -> Iterable[str]:
    for value in values:
        if shape.member.type_name == "structure":
            yield f"<item>{_members(value, shape.member)}</item>"
        else:
            yield f"<item>{escape(str(value))}</item>"
