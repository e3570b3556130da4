"""Quota as flags write it, in kueuectl's form: `--nominal-quota "default:cpu=9;memory=36Gi,spot:cpu=18"`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.client.transport import Document

Quotas = dict[str, dict[str, str]]
"""Flavor to resource to quantity, in the order of the flags."""

_FORM = 'write it as "FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY,FLAVOR:..."'


def parse_quotas(flag: str, values: Iterable[str]) -> Quotas:
    """All values of one flag. Raises UsageError for what is not of the form."""
    quotas: Quotas = {}
    for part in (part for value in values for part in value.split(",")):
        flavor, colon, amounts = part.strip().partition(":")
        if not (flavor and colon and amounts):
            raise click.UsageError(f'{flag}: "{part}" is no quota; {_FORM}')
        found = quotas.setdefault(flavor, {})
        for amount in amounts.split(";"):
            resource, equals, quantity = (text.strip() for text in amount.partition("="))
            if not (resource and equals and quantity):
                raise click.UsageError(f'{flag}: "{amount}" is no quota of {flavor}; {_FORM}')
            if resource in found:
                raise click.UsageError(f"{flag}: {resource} of {flavor} is given twice")
            found[resource] = quantity
    return quotas


def resource_groups(nominal: Iterable[str], borrowing: Iterable[str], lending: Iterable[str]) -> list[Document]:
    """`spec.resourceGroups`: flavors with the same resources are one group, tried in the order of the flags."""
    quotas = parse_quotas("--nominal-quota", nominal)
    limits = {
        "borrowingLimit": parse_quotas("--borrowing-limit", borrowing),
        "lendingLimit": parse_quotas("--lending-limit", lending),
    }
    for field, given in limits.items():
        for flavor, amounts in given.items():
            for resource in amounts:
                if resource not in quotas.get(flavor, {}):
                    flag = "--borrowing-limit" if field == "borrowingLimit" else "--lending-limit"
                    raise click.UsageError(f"{flag}: {resource} of {flavor} has no --nominal-quota")
    groups: dict[frozenset[str], Document] = {}
    for flavor, amounts in quotas.items():
        covered = groups.setdefault(frozenset(amounts), {"coveredResources": list(amounts), "flavors": []})
        resources = [
            {"name": resource, "nominalQuota": amounts[resource]}
            | {field: given[flavor][resource] for field, given in limits.items() if resource in given.get(flavor, {})}
            for resource in covered["coveredResources"]
        ]
        covered["flavors"].append({"name": flavor, "resources": resources})
    return list(groups.values())
