"""Reads each config.pbtxt of a folder by Triton's own message; writes what it understood as JSON."""

import json
import sys
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

found = {}
for file in sorted(Path(sys.argv[1]).glob("**/config.pbtxt")):
    config = text_format.Parse(file.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    kinds = [model_config_pb2.ModelInstanceGroup.Kind.Name(group.kind) for group in config.instance_group]
    found[str(file.relative_to(sys.argv[1]))] = {"backend": config.backend, "kinds": kinds}
print(json.dumps(found))
