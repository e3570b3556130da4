"""What has to be said for quota objects of other schedulers: what the nodes have, and in which flavor it is counted."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from admission.cli.errors import BadFlag
from admission.model.errors import InvalidQuantity
from admission.model.names import is_dns_subdomain, is_qualified_name
from admission.model.quantity import amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass(frozen=True, slots=True)
class TranslationFlags:
    """The values of the flags."""

    flavor: str
    capacity: Mapping[str, int]
    """Amounts as in `admission.model.quantity`; of other resources nobody says what there is."""


def translation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--capacity` and `--flavor`; the command gets a `translation`."""

    @click.option("--capacity", multiple=True, help="What the nodes have: RESOURCE=QUANTITY,...; repeatable.")
    @click.option("--flavor", default="default", show_default=True, help="The ResourceFlavor of the quota.")
    @functools.wraps(command)
    def with_flags(*args: Any, capacity: tuple[str, ...], flavor: str, **kwargs: Any) -> Any:
        if not is_dns_subdomain(flavor):
            raise BadFlag(f'--flavor: "{flavor}" is no name of a ResourceFlavor')
        return command(*args, translation=TranslationFlags(flavor, _capacity(capacity)), **kwargs)

    return with_flags


def _capacity(values: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in (part.strip() for value in values for part in value.split(",")):
        resource, equals, quantity = (text.strip() for text in part.partition("="))
        if not equals or not is_qualified_name(resource):
            raise BadFlag(f'--capacity: "{part}" is no RESOURCE=QUANTITY such as cpu=64 or memory=256Gi')
        if resource in found:
            raise BadFlag(f"--capacity: {resource} is given twice")
        try:
            found[resource] = amount(resource, quantity)
        except InvalidQuantity as error:
            raise BadFlag(f"--capacity: {resource}: {error}") from error
    return found
