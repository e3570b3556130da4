"""A Job from flags: what `sluice submit --cpu 2 --image i -- command` sends to Kubernetes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from admission.cli.errors import BadFlag
from admission.kinds.base import HOLD, MAX_EXEC_TIME, PRIORITY_CLASS, QUEUE_NAME
from admission.model.errors import InvalidQuantity
from admission.model.names import is_dns_subdomain, is_label_value
from admission.model.quantity import amount as amount_of

GPU: Final = "nvidia.com/gpu"
"""The resource that `--gpu` asks for."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_NAME: Final = 63
"""Characters of a Job's name: longer ones cannot be values of the labels that its pods get."""
_SUFFIX: Final = 5
"""Characters that the API server adds to a `generateName`."""


@dataclass(frozen=True, slots=True)
class JobFlags:
    """What the user asks for. Amounts are Kubernetes quantities."""

    image: str
    command: tuple[str, ...]
    name: str = ""
    """Empty: one is made up of the command."""
    requests: tuple[tuple[str, str], ...] = ()
    """(resource, amount) for each pod."""
    pods: int = 1
    """How many run at a time, each with an index of its own."""
    retries: int = 0
    """How many pods may fail before the Job does."""
    environment: tuple[tuple[str, str], ...] = ()
    priority_class: str = ""
    time_limit: int = 0
    """Seconds that it may run; 0: as long as it likes."""
    hold: bool = False


def job_manifest(flags: JobFlags, *, queue: str, namespace: str) -> dict[str, Any]:
    """The Job, suspended, with the labels by which it is queued; in no `namespace` if that is empty. Raises BadFlag."""
    metadata: dict[str, Any] = {"namespace": namespace} if namespace else {}
    metadata["labels"] = _labels(flags, queue)
    if flags.name:
        if len(flags.name) > _LONGEST_NAME or not is_dns_subdomain(flags.name):
            raise BadFlag(
                f'--name: "{flags.name}" is no name of a Job: use a-z, 0-9, - and ., at most {_LONGEST_NAME} characters'
            )
        metadata["name"] = flags.name
    else:
        metadata["generateName"] = f"{_made_up_name(flags)}-"
    spec: dict[str, Any] = {
        "suspend": True,
        "parallelism": flags.pods,
        "completions": flags.pods,
        "backoffLimit": flags.retries,
        "template": {"spec": {"restartPolicy": "Never", "containers": [_container(flags)]}},
    }
    if flags.pods > 1:
        spec["completionMode"] = "Indexed"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def key_value(text: str, *, flag: str) -> tuple[str, str]:
    """`KEY=VALUE` in two. Raises BadFlag."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise BadFlag(f'{flag}: "{text}" is not KEY=VALUE')
    return key, value


def seconds(text: str, *, flag: str) -> int:
    """How many seconds `90m`, `1h30m` or `3600` are. Raises BadFlag."""
    if text.isascii() and text.isdecimal() and int(text):
        return int(text)
    parts = re.findall(r"(\d{1,9})([smhd])", text, re.ASCII)
    total = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not total:
        raise BadFlag(f'{flag}: "{text}" is no time; write one such as 90m, 1h30m, 2d, or seconds')
    return total


def _labels(flags: JobFlags, queue: str) -> dict[str, str]:
    labels = {QUEUE_NAME: queue}
    if flags.priority_class:
        labels[PRIORITY_CLASS] = flags.priority_class
    if flags.time_limit:
        labels[MAX_EXEC_TIME] = str(flags.time_limit)
    if flags.hold:
        labels[HOLD] = "true"
    for label, value in labels.items():
        if not is_label_value(value):
            raise BadFlag(f'"{value}" cannot be the value of the label {label}: use letters, digits, -, _ and .')
    return labels


def _container(flags: JobFlags) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": flags.image}
    if flags.command:
        container["command"] = [*flags.command]
    if flags.environment:
        container["env"] = [{"name": name, "value": value} for name, value in flags.environment]
    if flags.requests:
        for resource, amount in flags.requests:
            try:
                # As the API server has it of all resources that are not Kubernetes' own.
                if "/" in resource and amount_of("cpu", amount) % 1000:
                    raise BadFlag(f'{resource}: "{amount}" is no whole number; devices are given whole')
                amount_of(resource, amount)
            except InvalidQuantity as error:
                raise BadFlag(f"{resource}: {error.causes[0][1]}") from error
        # Without a limit a pod may use idle cores of its node; memory and devices cannot be lent so.
        limits = {resource: amount for resource, amount in flags.requests if resource != "cpu"}
        container["resources"] = {"requests": dict(flags.requests)} | ({"limits": limits} if limits else {})
    return container


def _made_up_name(flags: JobFlags) -> str:
    """What the command, or else the image, is called, as far as Kubernetes allows."""
    word = flags.command[0] if flags.command else flags.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    plain = re.sub(r"[^a-z0-9]+", "-", word.rpartition("/")[2].lower()).strip("-")
    return plain[: _LONGEST_NAME - _SUFFIX - 1].strip("-") or "job"
