"""What commands print: documents in the format of `-o`, and what became, or would become, of an object."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import yaml

from admission.cli.arguments.objects import shown
from admission.cli.output.jsonpath import parse, render
from admission.model.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from admission.client import Affected, Impact
    from admission.client.documents import Options
    from admission.client.transport import Document

_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What JSON or YAML let stand as it is, and terminals obey: controls above ASCII, and those of the direction."""
_WORDS = ("json", "yaml", "name", "wide")
_SHOWN = 10  # workloads of an impact that are named


class Output(click.ParamType[str]):
    """The value of `-o`: one of `words`, or a JSONPath template."""

    name = "output"

    def __init__(self, *words: str) -> None:
        self._words = words or _WORDS

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Raises click's error for anything else."""
        text = str(value)
        if text.startswith("jsonpath="):
            try:
                parse(text.removeprefix("jsonpath="))
            except ValueError as error:
                self.fail(str(error), param, ctx)
        elif text not in self._words:
            self.fail(f"'{value}' is not one of {', '.join(self._words)}, jsonpath=TEMPLATE.", param, ctx)
        return text

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """For the help."""
        return "|".join([*self._words, "jsonpath=..."])


def output_option(*words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`-o`, for what prints objects."""
    return click.option("-o", "--output", type=Output(*words), help="Print documents, or more columns.")


@dataclass(frozen=True, slots=True)
class Writing:
    """How a command writes: `dry_run` is none, client (nothing is sent) or server (it says what would follow)."""

    dry_run: str
    reason: str

    @property
    def options(self) -> Options:
        """For requests."""
        from admission.client.documents import Options

        return Options(self.reason, self.dry_run == "server")


def writing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--dry-run` and `--reason`; the command gets a `writing`."""

    @click.option(
        "--dry-run",
        type=click.Choice(["none", "client", "server"]),
        is_flag=False,
        flag_value="server",
        default="none",
        help="Write nothing; with server (also if no value is given), see what would follow.",
    )
    @click.option("--reason", default="", help="Why; kept in the history of the object.")
    @functools.wraps(command)
    def with_writing(*args: Any, dry_run: str, reason: str, **kwargs: Any) -> Any:
        return command(*args, writing=Writing(dry_run, reason), **kwargs)

    return with_writing


def print_line(text: str, *, err: bool = False) -> None:
    """One line. What would steer the terminal is shown and does nothing: others write names, messages and reasons."""
    click.echo(visible(text), err=err)


def serialized(document: Any, output: str) -> str:
    """A document as `-o json`, `yaml` or `jsonpath=...` prints it."""
    if output.startswith("jsonpath="):
        return render(output.removeprefix("jsonpath="), document)
    if output == "json":
        return _UNPRINTABLE.sub(_as_json, json.dumps(document, indent=2, ensure_ascii=False))
    text = str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    if _UNPRINTABLE.search(text):
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=False)
    return text.rstrip()


def _as_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def print_documents(found: Sequence[Document], output: str, *, singular: str, as_list: bool) -> None:
    """All of `found`, in a List if it was a list that was asked for."""
    if output == "name":
        for item in found:
            print_line(shown(singular, item["metadata"]["name"]))
        return
    document = {"apiVersion": "v1", "kind": "List", "items": list(found)} if as_list else found[0]
    # A template says itself where lines end.
    click.echo(serialized(document, output), nl=not output.startswith("jsonpath="))


def print_outcome(
    what: str, outcome: str, writing: Writing, document: Document | None = None, *, details: Sequence[str] = ()
) -> None:
    """`clusterqueue.sluice.dev/team-a configured (server dry run)`, and what would follow, by the server's answer."""
    from admission.client.reading import impact, read

    suffix = {"client": " (dry run)", "server": " (server dry run)"}.get(writing.dry_run, "")
    print_line(f"{what} {outcome}{suffix}")
    for detail in details:
        print_line(f"  {detail}")
    following = None if document is None else read(impact, document)
    if following is not None:
        for line in impact_lines(following):
            print_line(f"  {line}")


def impact_lines(impact: Impact) -> list[str]:
    """What would follow, for people."""
    if not impact:
        return ["nothing else would change"]
    return [
        *_affected("would be admitted", impact.admitted),
        *_affected("would be evicted", impact.evicted),
        *_affected("could never run", impact.impossible),
        *(
            f"{over.kind} {over.name} would use {over.by} of {over.resource} in flavor {over.flavor} more than "
            "it may; what runs stays"
            for over in impact.over_quota
        ),
    ]


def _affected(what: str, workloads: Sequence[Affected]) -> list[str]:
    if not workloads:
        return []
    several = len(workloads) > 1
    lines = [f"{len(workloads)} {'workloads' if several else 'workload'} {what}:"]
    lines += [f"  {one.namespace}/{one.name}" + (f": {one.why}" if one.why else "") for one in workloads[:_SHOWN]]
    if len(workloads) > _SHOWN:
        lines.append(f"  and {len(workloads) - _SHOWN} more")
    return lines
