"""Resource accounting: which requests count against quota, and as which resource.

Kueue's configuration `resources.excludeResourcePrefixes` and `resources.transformations` (KEP 2937).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from admission.model.quantity import add, to_amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.model.workload import PodSet


@dataclass(frozen=True, slots=True)
class Transformation:
    """A rule by which requests of the resource `input` count as amounts of other resources."""

    input: str
    outputs: Mapping[str, Fraction]
    """Output resource to the amount counted per unit (core, byte, device) of the input. A negative factor is an
    allowance: it is subtracted from the amounts that other transformations add to the same output."""
    replace: bool = False
    """Whether the input itself is not counted any more (Kueue's strategy Replace)."""
    multiply_by: str = ""
    """A resource whose request multiplies that of the input."""


@dataclass(frozen=True, slots=True)
class Accounting:
    """The accounting rules, which apply to all ClusterQueues."""

    excluded_prefixes: tuple[str, ...] = ()
    """Requests of resources with one of these prefixes do not count."""
    transformations: tuple[Transformation, ...] = ()

    def pod_sets(self, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
        """Return the pod sets with the requests that count against quota."""
        if not self.excluded_prefixes and not self.transformations:
            return pod_sets
        return tuple(replace(pod_set, requests=self._counted(pod_set)) for pod_set in pod_sets)

    def _counted(self, pod_set: PodSet) -> dict[str, int]:
        """Return what one pod counts as. As in Kueue, the rules do not concern devices by claim."""
        counted = self._requests(pod_set.beside_devices)
        add(counted, pod_set.devices)
        return counted

    def _requests(self, requests: Mapping[str, int]) -> dict[str, int]:
        counted = {
            resource: Fraction(amount, 1000) if resource == "cpu" else Fraction(amount)
            for resource, amount in requests.items()
            if not resource.startswith(self.excluded_prefixes)
        }
        kept, made = dict(counted), dict[str, Fraction]()
        for rule in self.transformations:
            value = counted.get(rule.input)
            if value is None:
                continue
            value *= counted.get(rule.multiply_by, 1)
            for output, factor in rule.outputs.items():
                made[output] = made.get(output, Fraction(0)) + value * factor
            if rule.replace:
                kept.pop(rule.input, None)
        # An allowance reduces only what transformations add, not what the pods themselves request of the output.
        for output, value in made.items():
            kept[output] = kept.get(output, Fraction(0)) + max(value, Fraction(0))
        return {resource: to_amount(resource, value) for resource, value in kept.items()}
