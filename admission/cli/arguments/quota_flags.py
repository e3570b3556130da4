"""Quota flags, in the form of kueuectl: `--nominal-quota "default:cpu=9;memory=36Gi,spot:cpu=18"`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.client.transport import Document

Quotas = dict[str, dict[str, str]]
"""Flavor -> resource -> quantity, in the order of the flags: `{"default": {"cpu": "9"}}`."""

_FORM = 'use "FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY,FLAVOR:..."'


def parse_quotas(flag: str, values: Iterable[str]) -> Quotas:
    """Parse all values of one flag. Raises UsageError for a value of another form."""
    quotas: Quotas = {}
    for part in (part for value in values for part in value.split(",")):
        flavor, colon, amounts = part.strip().partition(":")
        if not (flavor and colon and amounts):
            raise click.UsageError(f'{flag}: "{part}" is not a quota; {_FORM}')
        found = quotas.setdefault(flavor, {})
        for amount in amounts.split(";"):
            resource, equals, quantity = (text.strip() for text in amount.partition("="))
            if not (resource and equals and quantity):
                raise click.UsageError(f'{flag}: "{amount}" is not a quota in flavor {flavor}; {_FORM}')
            if ":" in resource:
                meant = part.strip().replace(f";{amount}", f",{amount.strip()}")
                raise click.UsageError(
                    f'{flag}: "{resource}" is not a resource; flavors are separated by a comma: use "{meant}"'
                )
            if resource in found:
                raise click.UsageError(f"{flag}: duplicate quota of {resource} in flavor {flavor}")
            found[resource] = quantity
    return quotas


def resource_groups(nominal: Iterable[str], borrowing: Iterable[str], lending: Iterable[str]) -> list[Document]:
    """Return `spec.resourceGroups`: flavors with the same resources form a group, in the order of the flags.

    Raises UsageError for a limit of a resource that has no nominal quota in the flavor.
    """
    quotas = parse_quotas("--nominal-quota", nominal)
    limits = {
        "borrowingLimit": parse_quotas("--borrowing-limit", borrowing),
        "lendingLimit": parse_quotas("--lending-limit", lending),
    }
    for field, by_flavor in limits.items():
        for flavor, amounts in by_flavor.items():
            for resource in amounts:
                if resource not in quotas.get(flavor, {}):
                    flag = "--borrowing-limit" if field == "borrowingLimit" else "--lending-limit"
                    raise click.UsageError(f"{flag}: {resource} in flavor {flavor} has no --nominal-quota")
    groups: dict[frozenset[str], Document] = {}
    for flavor, amounts in quotas.items():
        covered = groups.setdefault(frozenset(amounts), {"coveredResources": list(amounts), "flavors": []})
        resources = [
            {"name": resource, "nominalQuota": amounts[resource]}
            | {
                field: by_flavor[flavor][resource]
                for field, by_flavor in limits.items()
                if resource in by_flavor.get(flavor, {})
            }
            for resource in covered["coveredResources"]
        ]
        covered["flavors"].append({"name": flavor, "resources": resources})
    return list(groups.values())
