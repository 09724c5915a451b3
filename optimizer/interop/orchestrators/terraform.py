"""Turns the instances of a plan into Terraform for AWS, Google and Azure, and Terraform into the machines it makes."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from optimizer.interop.asks import Ask, whole
from optimizer.interop.checkpoints import disk_gb
from optimizer.interop.launch_plan import Exported, LaunchPlan, Purchase, comment, provenance, slug
from optimizer.interop.orchestrators import tpu_slices

VERSION: Final = "1.11"
PROVIDER_VERSIONS: Final = {
    "aws": ("hashicorp/aws", "~> 6.0"),
    "gcp": ("hashicorp/google", "~> 7.0"),
    "azure": ("hashicorp/azurerm", "~> 4.0"),
}
"""Registry sources and major versions (registry.terraform.io, read 2026-11-30)."""

_LOCAL_NAMES: Final = {"aws": "aws", "gcp": "google", "azure": "azurerm"}
_DISK_GB: Final = 500


def export(plan: LaunchPlan) -> Exported:
    """One `main.tf` with a resource for each purchase; sellers without an official Terraform provider are left out."""
    known = [bought for bought in plan.purchases if bought.provider in PROVIDER_VERSIONS and not _is_slice(bought)]
    warnings = list(_warnings(plan.purchases))
    if not known:
        return Exported(files={}, warnings=tuple(warnings))
    head = comment([*provenance(plan, known), f"For Terraform {VERSION}: terraform init, then terraform plan."])
    blocks = [*_settings(known), *_variables(known)]
    blocks += [_resource(bought, _label(index, bought), _disk(plan, bought)) for index, bought in enumerate(known)]
    return Exported(files={"main.tf": head + "\n" + "\n".join(blocks)}, warnings=tuple(warnings))


def quoted(text: str) -> str:
    """The text as a string of Terraform's language: no template is opened in it."""
    return json.dumps(text, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")


def block(head: str, *parts: tuple[str, str] | str) -> str:
    """A block with aligned assignments, as `terraform fmt` writes it; nested blocks are given as text."""
    lines: list[str] = []
    run: list[tuple[str, str]] = []

    def flush() -> None:
        width = max((len(key) for key, _ in run), default=0)
        lines.extend(f"  {key.ljust(width)} = {value}" for key, value in run)
        run.clear()

    for part in parts:
        if isinstance(part, tuple):
            run.append(part)
        else:
            flush()
            lines.extend(f"  {line}" if line else "" for line in ["", *part.rstrip("\n").split("\n")] if lines or line)
    flush()
    return "\n".join([f"{head} {{", *lines, "}", ""])


def _warnings(purchases: Sequence[Purchase]) -> Iterator[str]:
    for provider in sorted({bought.provider for bought in purchases} - PROVIDER_VERSIONS.keys()):
        yield f"{provider}: no official Terraform provider is known here; its instances are not in the file"
    for bought in purchases:
        if bought.provider not in PROVIDER_VERSIONS:
            continue
        if bought.purchase_option.startswith("reserved"):
            yield (
                f"{bought.instance_type}: Terraform starts the instances; the {bought.purchase_option} commitment is "
                "bought apart from it"
            )
        if bought.purchase_option == "capacity_block":
            yield f"{bought.instance_type}: a capacity block is bought first; put its id in the variable"
        if _is_slice(bought):
            yield f"{bought.instance_type}: a slice of a TPU pod is made by google_tpu_v2_vm: it is not in the file"
        if bought.accelerators < 1:
            yield f"{bought.instance_type}: check the attached accelerator, which the type's name does not say"


def _is_slice(bought: Purchase) -> bool:
    """Google's slices of TPU pods are no machines of Compute Engine."""
    return bought.provider == "gcp" and tpu_slices.chips(bought.instance_type) is not None


def _label(index: int, bought: Purchase) -> str:
    return f"{slug(bought.instance_type).replace('-', '_')}_{index}"


def _settings(purchases: Sequence[Purchase]) -> Iterator[str]:
    providers = [name for name in PROVIDER_VERSIONS if any(bought.provider == name for bought in purchases)]
    required = "\n".join(
        f"  {_LOCAL_NAMES[name].ljust(max(len(_LOCAL_NAMES[n]) for n in providers))} = "
        f"{{ source = {quoted(PROVIDER_VERSIONS[name][0])}, version = {quoted(PROVIDER_VERSIONS[name][1])} }}"
        for name in providers
    )
    yield block("terraform", f"required_providers {{\n{required}\n}}")
    for name in providers:
        if name == "azure":
            yield block('provider "azurerm"', "features {}")
            continue
        for region in dict.fromkeys(bought.region for bought in purchases if bought.provider == name):
            alias = _alias(region)
            place = (("region", quoted(region)),) if region else ()
            project = (("project", "var.google_project"),) if name == "gcp" else ()
            yield block(f'provider "{_LOCAL_NAMES[name]}"', ("alias", quoted(alias)), *project, *place)


def _variables(purchases: Sequence[Purchase]) -> Iterator[str]:
    providers = {bought.provider for bought in purchases}
    if "gcp" in providers:
        yield _variable("google_project", "Project that pays.")
    if "azure" in providers:
        yield _variable("azure_resource_group", "Resource group for the machines.")
        yield _variable("ssh_public_key", "Key that may log in.")
    for index, bought in enumerate(purchases):
        label = _label(index, bought)
        if bought.provider == "aws":
            yield _variable(f"{label}_ami", f"Image with drivers in {bought.region}.")
            yield _variable(f"{label}_subnet_id", f"Subnet in {bought.zone or bought.region}.")
        elif bought.provider == "gcp":
            yield _variable(f"{label}_image", "Image with drivers.")
            yield _variable(f"{label}_network", "Network or its self link.")
            if not bought.zone:
                yield _variable(f"{label}_zone", f"Zone of {bought.region} that has capacity.")
        else:
            yield _variable(f"{label}_image_id", "Image with drivers.")
            yield _variable(f"{label}_network_interface_ids", "One for each machine.", "list(string)")
        if bought.purchase_option == "capacity_block":
            yield _variable(f"{label}_capacity_reservation_id", "The capacity block.")


def _variable(name: str, description: str, kind: str = "string") -> str:
    return block(f'variable "{name}"', ("type", kind), ("description", quoted(description)))


def _disk(plan: LaunchPlan, bought: Purchase) -> int:
    """GB for the largest checkpoint that is loaded on the machine."""
    served = [group.model for group in plan.groups if bought in group.purchases]
    trained = [job.model for job in plan.jobs if job.purchase == bought]
    return max((disk_gb(model, _DISK_GB) for model in [*served, *trained]), default=_DISK_GB)


def _resource(bought: Purchase, label: str, disk: int) -> str:
    return {"aws": _aws, "gcp": _google, "azure": _azure}[bought.provider](bought, label, disk)


def _aws(bought: Purchase, label: str, disk: int) -> str:
    parts: list[tuple[str, str] | str] = [
        ("provider", f"aws.{_alias(bought.region)}"),
        ("count", str(bought.count)),
        ("instance_type", quoted(bought.instance_type)),
        ("ami", f"var.{label}_ami"),
        ("subnet_id", f"var.{label}_subnet_id"),
        ("tags", f"{{ Name = {quoted(f'costopt-{label}')} }}"),
    ]
    if bought.zone_name:
        parts.insert(3, ("availability_zone", quoted(bought.zone_name)))
    if bought.purchase_option == "spot":
        parts.append('instance_market_options {\n  market_type = "spot"\n}')
    if bought.purchase_option == "capacity_block":
        parts.append('instance_market_options {\n  market_type = "capacity-block"\n}')
        target = (
            f"capacity_reservation_target {{\n    capacity_reservation_id = var.{label}_capacity_reservation_id\n  }}"
        )
        parts.append(f"capacity_reservation_specification {{\n  {target}\n}}")
    parts.append(f"root_block_device {{\n  volume_size = {disk}\n}}")
    return block(f'resource "aws_instance" "{label}"', *parts)


def _google(bought: Purchase, label: str, disk: int) -> str:
    spot = bought.purchase_option == "spot"
    parts: list[tuple[str, str] | str] = [
        ("provider", f"google.{_alias(bought.region)}"),
        ("count", str(bought.count)),
        ("name", f'"costopt-{label.replace("_", "-")}-${{count.index}}"'),
        ("machine_type", quoted(bought.machine_type)),
        ("zone", quoted(bought.zone) if bought.zone else f"var.{label}_zone"),
        f"boot_disk {{\n  initialize_params {{\n    image = var.{label}_image\n    size  = {disk}\n  }}\n}}",
        f"network_interface {{\n  network = var.{label}_network\n}}",
    ]
    if bought.attached:
        count = max(1, round(bought.accelerators))
        parts.append(f"guest_accelerator {{\n  type  = {quoted(bought.attached)}\n  count = {count}\n}}")
    model = ['  provisioning_model  = "SPOT"', "  preemptible         = true"] if spot else []
    restart = f"  automatic_restart   = {'false' if spot else 'true'}"
    lines = "\n".join(['  on_host_maintenance = "TERMINATE"', restart, *model])
    parts.append(f"scheduling {{\n{lines}\n}}")
    return block(f'resource "google_compute_instance" "{label}"', *parts)


def _azure(bought: Purchase, label: str, disk_size: int) -> str:
    parts: list[tuple[str, str] | str] = [
        ("count", str(bought.count)),
        ("name", f'"costopt-{label.replace("_", "-")}-${{count.index}}"'),
        ("resource_group_name", "var.azure_resource_group"),
        ("location", quoted(bought.region or "")),
        ("size", quoted(bought.instance_type)),
        ("admin_username", '"costopt"'),
        ("source_image_id", f"var.{label}_image_id"),
        ("network_interface_ids", f"[var.{label}_network_interface_ids[count.index]]"),
    ]
    if bought.purchase_option == "spot":
        parts += [("priority", '"Spot"'), ("eviction_policy", '"Deallocate"')]
    parts.append('admin_ssh_key {\n  username   = "costopt"\n  public_key = var.ssh_public_key\n}')
    disk = ['caching              = "ReadWrite"', 'storage_account_type = "Premium_LRS"']
    lines = "\n".join(f"  {line}" for line in [*disk, f"disk_size_gb         = {disk_size}"])
    parts.append(f"os_disk {{\n{lines}\n}}")
    return block(f'resource "azurerm_linux_virtual_machine" "{label}"', *parts)


def _alias(region: str | None) -> str:
    return slug(region or "default").replace("-", "_")


_RESOURCE: Final = re.compile(
    r'^\s*resource\s+"(aws_instance|google_compute_instance|azurerm_linux_virtual_machine)"\s+"([\w-]+)"\s*\{', re.ASCII
)
_ASSIGNED: Final = re.compile(r'^\s*"?([\w-]+)"?\s*=\s*(.+?)\s*$', re.ASCII)
_OTHER: Final = re.compile(r'^\s*(provider|variable)\s+"([\w-]+)"\s*\{', re.ASCII)
_NESTED: Final = re.compile(r'^\s*([\w-]+)\s*(?:"[^"]*"\s*)*\{', re.ASCII)
_SELLERS: Final = {local: seller for seller, local in _LOCAL_NAMES.items()}
_TYPES: Final = ("instance_type", "machine_type", "size")
_LONGEST_LINE: Final = 2000


def is_terraform(text: str) -> bool:
    """Whether a machine of one of the known kinds stands in it."""
    return any(_RESOURCE.match(line) for line in text.splitlines() if len(line) < _LONGEST_LINE)


def read(text: str) -> list[Ask]:
    """The machines that a configuration makes, each kind with its count; expressions other than constants and
    variables with a default are not known."""
    blocks = list(_blocks(text))
    defaults = {
        name: words["default"][0] for kind, name, _, words in blocks if kind == "variable" and "default" in words
    }
    regions: dict[str, str] = {}
    for kind, name, _, words in blocks:
        if kind == "provider" and "region" in words:
            alias = _value(words.get("alias", ("", 0))[0], {})
            regions[f"{name}.{alias}" if alias else name] = _value(words["region"][0], defaults) or ""
    return [
        _machine(kind, name, line, words, defaults, regions) for kind, name, line, words in blocks if kind in _KINDS
    ]


_KINDS: Final = {"aws_instance": "aws", "google_compute_instance": "google", "azurerm_linux_virtual_machine": "azurerm"}


def _machine(
    kind: str,
    name: str,
    line: int,
    words: Mapping[str, tuple[str, int]],
    defaults: Mapping[str, str],
    regions: Mapping[str, str],
) -> Ask:
    def said(*keys: str) -> str | None:
        return next((_value(words[key][0], defaults) for key in keys if key in words), None)

    place = words.get("provider", (_KINDS[kind], 0))[0]
    instance_type, attached = said(*_TYPES), said("guest_accelerator.type")
    if kind == "google_compute_instance" and attached is not None:
        # Prices of machines with attached GPUs are kept under such names.
        instance_type = f"{instance_type}+{attached}x{said('guest_accelerator.count') or 1}"
    zone = said("zone", "availability_zone")
    region = said("location") or regions.get(place)
    if region is None and zone is not None:
        region = zone.rpartition("-")[0] if kind == "google_compute_instance" else zone.rstrip("abcdef")
    lines = {"place": next((words[key][1] for key in _TYPES if key in words), line)}
    if "count" in words:
        lines["replicas"] = words["count"][1]
    spot = {said("instance_market_options.market_type"), said("scheduling.provisioning_model"), said("priority")}
    return Ask(
        source="Terraform",
        name=name,
        instance_type=instance_type,
        provider=_SELLERS[_KINDS[kind]],
        region=region or None,
        replicas=whole(said("count")) or 1,
        spot=any((word or "").lower() == "spot" for word in spot),
        lines=lines,
    )


def _blocks(text: str) -> Iterator[tuple[str, str, int, dict[str, tuple[str, int]]]]:
    """Kind, name, line and assignments of each block of interest; those of nested blocks as BLOCK.NAME."""
    kind, name, begin = "", "", 0
    inside: list[str] = []
    words: dict[str, tuple[str, int]] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = "" if len(raw) > _LONGEST_LINE else raw.split("#", 1)[0].split(" //", 1)[0]
        if not kind:
            resource = _RESOURCE.match(line)
            other = None if resource else _OTHER.match(line)
            if resource is None and other is None:
                continue
            kind, name = (resource[1], resource[2]) if resource else (other[1], other[2]) if other else ("", "")
            begin, words, inside = number, {}, []
        nested = _NESTED.match(line) if inside else None
        inner = line.partition("{")[2] if nested or not inside else line
        if nested or not inside:
            inside.append(nested[1] if nested else "")
        assigned = _ASSIGNED.match(inner)
        if assigned:
            path = f"{inside[-1]}.{assigned[1]}" if inside[-1] else assigned[1]
            words.setdefault(path, (assigned[2].removesuffix("}").strip(), number))
        for character in inner:
            if character == "{":
                inside.append(inside[-1] if inside else "")
            elif character == "}" and inside:
                inside.pop()
        if not inside:
            yield kind, name, begin, words
            kind = ""


def _value(text: str, defaults: Mapping[str, str]) -> str | None:
    """A constant, or the default of a variable; None for another expression."""
    if text.startswith("var."):
        text = defaults.get(text.removeprefix("var."), "")
    if re.fullmatch(r'"[^"$%]*"', text):
        return text[1:-1]
    return text if re.fullmatch(r"\d{1,6}", text, re.ASCII) else None
