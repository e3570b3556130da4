"""Evaluation of a Job's podFailurePolicy and successPolicy, as in upstream's job controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from admission.sandbox.controllers.base import condition
from admission.sandbox.controllers.indexes import parse_indexes

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object


@dataclass(frozen=True, slots=True)
class Failure:
    """Treatment of a failed pod. `action` is that of the matching rule, empty if none matches."""

    counts: bool = True
    action: str = ""
    message: str = ""


def match_failure_policy(job: Object, pod: Object) -> Failure:
    """Return the treatment of a failed pod by the first matching rule of podFailurePolicy; without one it counts."""
    rules = job["spec"].get("podFailurePolicy", {}).get("rules") or ()
    for position, rule in enumerate(rules):
        why = _exit_code_match(rule, pod) if rule.get("onExitCodes") else _condition_match(rule, pod)
        if why:
            action: str = rule["action"]
            return Failure(action != "Ignore", action, f"{why} matching {action} rule at index {position}")
    return Failure()


def _exit_code_match(rule: Object, pod: Object) -> str:
    wanted = rule["onExitCodes"]
    status = pod.get("status", {})
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        ended = container.get("state", {}).get("terminated")
        if not ended or not ended["exitCode"] or wanted.get("containerName") not in (None, container["name"]):
            continue
        if (ended["exitCode"] in wanted["values"]) == (wanted["operator"] == "In"):
            return f"Container {container['name']} for pod {_key(pod)} failed with exit code {ended['exitCode']}"
    return ""


def _condition_match(rule: Object, pod: Object) -> str:
    for wanted in rule.get("onPodConditions") or ():
        found = condition(pod, wanted["type"])
        if found is not None and found["status"] == wanted.get("status", "True"):
            return f"Pod {_key(pod)} has condition {wanted['type']}"
    return ""


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def met_success_policy(job: Object, succeeded: set[int]) -> str | None:
    """Return the message of the first rule of successPolicy that the succeeded indexes meet, else None."""
    spec = job["spec"]
    for position, rule in enumerate(spec.get("successPolicy", {}).get("rules") or ()):
        matching, needed = succeeded, rule.get("succeededCount")
        if "succeededIndexes" in rule:
            indexes = parse_indexes(rule["succeededIndexes"], spec["completions"])
            matching = succeeded & indexes
            needed = len(indexes) if needed is None else needed
        if len(matching) >= needed:
            return f"Matched rules at index {position}"
    return None
