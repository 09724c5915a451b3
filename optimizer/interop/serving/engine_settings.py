"""Turns settings of serving engines, as Triton, Ray Serve and `vllm serve --config` have them, into what is asked."""

from collections.abc import Mapping
from typing import Any, Final

from optimizer.interop.asks import Ask, divided, line_of, mapping, whole, wish
from optimizer.interop.readers.command_lines import OPTIONS, Server, served
from optimizer.interop.readers.scaling import growth
from optimizer.interop.serving.ray import TYPES
from optimizer.workload.workload_file import Lines, load_yaml

_TELLING: Final = frozenset(
    {"tensor_parallel", "pipeline_parallel", "context", "memory_share", "sequences", "kv_dtype"}
)
"""Settings of which one must stand beside the model: many files name a model."""

_TENSORRT_KEYS: Final = frozenset({"triton_config", "kv_cache_config", "max_seq_len"})


def is_engine(content: Mapping[str, Any]) -> bool:
    """Whether a file holds an engine's settings: a model, and how it is served."""
    named = {OPTIONS.get(_flag(key)) for key in content}
    return isinstance(content.get("model"), str) and bool(named & _TELLING)


def read(content: Mapping[str, Any], lines: Lines) -> Ask:
    """One replica on accelerators that the file cannot name."""
    engine = "tensorrt-llm" if _TENSORRT_KEYS & content.keys() else "vllm"
    cache = content.get("kv_cache_config")
    inner = {"kv_cache_dtype": "dtype", "free_gpu_memory_fraction": "free_gpu_memory_fraction"}
    nested = {name: cache[key] for name, key in inner.items() if isinstance(cache, Mapping) and key in cache}
    found = _server(engine, {**content, **nested}, lines)
    return Ask(
        source=f"settings of {'TensorRT-LLM' if engine == 'tensorrt-llm' else 'vLLM'}",
        name="server",
        model=found.values.get("model"),
        lines=found.lines,
        accelerators_per_machine=_accelerators(found),
        **served(found),
    )


def is_ray(content: Mapping[str, Any]) -> bool:
    """Whether it is a configuration of Ray Serve with an LLM application."""
    applications = content.get("applications")
    return isinstance(applications, list) and any(
        isinstance(one, Mapping) and "serve.llm" in str(one.get("import_path")) for one in applications
    )


def read_ray(content: Mapping[str, Any], lines: Lines, stated: Mapping[str, str]) -> list[Ask]:
    """Each model that an application serves; `stated` has the accelerators that the file's head gives applications."""
    asks = []
    for number, application in enumerate(content["applications"]):
        arguments = application.get("args") if isinstance(application, Mapping) else None
        if not isinstance(arguments, Mapping):
            continue
        known = stated.get(str(application.get("name")), "")
        several = arguments.get("llm_configs")
        path: tuple[str | int, ...] = ("applications", number, "args")
        if isinstance(several, list):
            asks += [
                _of_config(one, lines, (*path, "llm_configs", index), known)
                for index, one in enumerate(several)
                if isinstance(one, Mapping)
            ]
        elif isinstance(arguments.get("llm_config"), Mapping):
            asks.append(_of_config(arguments["llm_config"], lines, (*path, "llm_config"), known))
    return asks


def read_ray_service(content: Mapping[str, Any], lines: Lines) -> list[Ask]:
    """The models of KubeRay's RayService: its configuration of Serve is a text inside the manifest."""
    spec = content.get("spec")
    text = spec.get("serveConfigV2") if isinstance(spec, Mapping) else None
    if not isinstance(text, str):
        return []
    # Empty lines before it keep the numbers of its lines.
    inner, places = load_yaml("\n" * (line_of(lines, "spec", "serveConfigV2") or 0) + text, "serveConfigV2")
    return read_ray(inner, places, {}) if isinstance(inner, Mapping) and is_ray(inner) else []


def _of_config(config: Mapping[str, Any], lines: Lines, path: tuple[str | int, ...], stated: str) -> Ask:
    engine, loading, deployment = (
        value if isinstance(value := config.get(key), Mapping) else {}
        for key in ("engine_kwargs", "model_loading_config", "deployment_config")
    )
    kind_of_engine = "sglang" if str(config.get("llm_engine")).lower() == "sglang" else "vllm"
    found = _server(kind_of_engine, engine, lines, *path, "engine_kwargs")
    model = next((one for key in ("model_source", "model_id") if isinstance(one := loading.get(key), str)), None)
    kind = config.get("accelerator_type")
    accelerators = _accelerators(found)
    line = line_of(lines, *path, "accelerator_type")
    known = _variant(str(kind or ""), stated)
    wishes, faults = divided([wish(known, accelerators, line)] if known else [])
    scaling = deployment.get("autoscaling_config")
    least, most = (mapping(scaling).get(bound) for bound in ("min_replicas", "max_replicas"))
    replicas = whole(deployment.get("num_replicas")) or whole(least) or 1
    notes = growth(replicas, most, line_of(lines, *path, "deployment_config", "autoscaling_config", "max_replicas"))
    return Ask(
        source="Ray Serve",
        name=str(loading.get("model_id") or "server"),
        model=model,
        wishes=wishes,
        replicas=replicas,
        accelerators_per_machine=accelerators,
        packs=True,
        lines={"model": line_of(lines, *path, "model_loading_config") or 1, **found.lines},
        faults=(*faults, *notes),
        **served(found),
    )


def _variant(kind: str, stated: str) -> str:
    """The accelerator that Ray's name means: the stated one where it can be that, else the name itself."""
    return stated if TYPES.get(stated, "") == kind else kind.removeprefix("AMD-Instinct-").removesuffix("-OAM")


def _server(engine: str, content: Mapping[str, Any], lines: Lines, *path: str | int) -> Server:
    values, places, others = {}, {}, {}
    for key, value in content.items():
        name, line = OPTIONS.get(_flag(key)), line_of(lines, *path, key) or 1
        if name is None and value not in (None, False):
            others[_flag(key)] = str(value), line
        elif isinstance(value, str | int | float) and not isinstance(value, bool) and name is not None:
            values[name], places[name] = str(value), line
    return Server(engine=engine, line=1, values=values, lines=places, others=others)


def _accelerators(found: Server) -> int:
    return (found.count("tensor_parallel") or 1) * (found.count("pipeline_parallel") or 1)


def _flag(key: object) -> str:
    return "--" + str(key).replace("_", "-")
