"""Options for the translation of other schedulers' quota objects: capacity of the nodes, and flavor of the quota."""

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
    """Values of `--flavor` and `--capacity`."""

    flavor: str
    capacity: Mapping[str, int]
    """Amounts as in `admission.model.quantity`: `{"cpu": 640000}`; the capacity of other resources is unknown."""


def translation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--capacity` and `--flavor` to a command, which receives them as `translation`."""

    @click.option(
        "--capacity",
        multiple=True,
        metavar="RESOURCE=QUANTITY,...",
        help="Total capacity of the nodes, for queues of other schedulers; repeatable.",
    )
    @click.option(
        "--flavor",
        default="default",
        metavar="NAME",
        show_default=True,
        help="ResourceFlavor of the quota of other schedulers' queues.",
    )
    @functools.wraps(command)
    def with_flags(*args: Any, capacity: tuple[str, ...], flavor: str, **kwargs: Any) -> Any:
        if not is_dns_subdomain(flavor):
            raise BadFlag(f'--flavor: "{flavor}" is not a valid ResourceFlavor name')
        return command(*args, translation=TranslationFlags(flavor, _capacity(capacity)), **kwargs)

    return with_flags


def _capacity(values: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in (part.strip() for value in values for part in value.split(",")):
        resource, equals, quantity = (text.strip() for text in part.partition("="))
        if not equals or not is_qualified_name(resource):
            raise BadFlag(f'--capacity: "{part}" is not RESOURCE=QUANTITY, such as cpu=64 or memory=256Gi')
        if resource in found:
            raise BadFlag(f"--capacity: duplicate resource {resource}")
        try:
            found[resource] = amount(resource, quantity)
        except InvalidQuantity as error:
            raise BadFlag(f"--capacity: {resource}: {error}") from error
    return found
