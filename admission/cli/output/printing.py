"""Output of commands: documents in the format of `-o`, and the outcome of a write with the effects of a dry run."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import yaml

from admission.cli.arguments.objects import qualified_name
from admission.cli.output.jsonpath import parse, render
from admission.model.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from admission.client import Affected, Impact
    from admission.client.documents import Options
    from admission.client.transport import Document

_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that JSON and YAML do not escape, but terminals interpret: C1 controls, line separators, bidi controls."""
_FORMATS = ("json", "yaml", "name", "wide")
_MAX_LISTED = 10
"""Workloads of each effect of a dry run that are listed by name."""


class Output(click.ParamType[str]):
    """Click type of `-o`: one of `formats`, or a JSONPath template."""

    name = "output"

    def __init__(self, *formats: str) -> None:
        self._formats = formats or _FORMATS

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value. Raises click's BadParameter for an unknown format or an invalid template."""
        text = str(value)
        if text.startswith("jsonpath="):
            try:
                parse(text.removeprefix("jsonpath="))
            except ValueError as error:
                self.fail(str(error), param, ctx)
        elif text not in self._formats:
            self.fail(f"'{value}' is not one of {', '.join(self._formats)}, jsonpath=TEMPLATE.", param, ctx)
        return text

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the formats as `--help` shows them: `json|yaml|jsonpath=...`."""
        return "|".join([*self._formats, "jsonpath=..."])


def output_option(*formats: str, default: str = "a table") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `-o` with these formats (none: all) and JSONPath; `default` describes the output without it."""
    return click.option("-o", "--output", type=Output(*formats), help=f"Output format.  [default: {default}]")


@dataclass(frozen=True, slots=True)
class WritingFlags:
    """Values of `--dry-run` and `--reason`."""

    dry_run: str
    """`none`; `client`: no request is sent; `server`: the request is sent as a dry run, and its effects are shown."""
    reason: str
    """Kept in the history of the object; empty: none."""

    @property
    def options(self) -> Options:
        """The options of write requests."""
        from admission.client.documents import Options

        return Options(self.reason, self.dry_run == "server")


def writing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--dry-run` and `--reason` to a command, which receives them as `writing`."""

    @click.option(
        "--dry-run",
        type=click.Choice(["none", "client", "server"]),
        is_flag=False,
        flag_value="server",
        default="none",
        help="Persist nothing. client: send no request; server (also without a value): show which workloads "
        "and quotas would be affected.",
    )
    @click.option("--reason", default="", help="Reason for the change, kept in the object's history.")
    @functools.wraps(command)
    def with_writing(*args: Any, dry_run: str, reason: str, **kwargs: Any) -> Any:
        return command(*args, writing=WritingFlags(dry_run, reason), **kwargs)

    return with_writing


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line, with control characters escaped: names, messages and reasons are written by other users."""
    click.echo(visible(text), err=err)


def serialized(document: Any, output: str) -> str:
    """Return a document in the format `json`, `yaml` or `jsonpath=TEMPLATE`."""
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
    """Print documents in a format of `-o`, with `as_list` in a Kubernetes List, else only the first.

    `singular` is their type in the format `name`.
    """
    if output == "name":
        for item in found:
            print_line(qualified_name(singular, item["metadata"]["name"]))
        return
    document = {"apiVersion": "v1", "kind": "List", "items": list(found)} if as_list else found[0]
    # A JSONPath template contains its own newlines, as with kubectl.
    click.echo(serialized(document, output), nl=not output.startswith("jsonpath="))


def print_outcome(
    what: str, outcome: str, writing: WritingFlags, document: Document | None = None, *, details: Sequence[str] = ()
) -> None:
    """Print `clusterqueue.sluice.dev/team-a configured (server dry run)`, the details, and the effects of a dry run.

    `document` is the server's response, which has the effects; None: no request was sent.
    """
    from admission.client.reading import impact, read

    suffix = {"client": " (dry run)", "server": " (server dry run)"}.get(writing.dry_run, "")
    print_line(f"{what} {outcome}{suffix}")
    for detail in details:
        print_line(f"  {detail}")
    following = None if document is None else read(impact, document)
    # That a new or unchanged object has no effects on workloads is not worth a line for each object of a file.
    if following is not None and (following or outcome not in ("created", "unchanged")):
        for line in impact_lines(following):
            print_line(f"  {line}")


def impact_lines(impact: Impact) -> list[str]:
    """Return the effects of a dry run, as lines for users."""
    if not impact:
        return ["nothing else would change"]
    return [
        *_affected("would be admitted", impact.admitted),
        *_affected("would be evicted", impact.evicted),
        *_affected("could never run", impact.impossible),
        *(
            f"{over.kind} {over.name} would exceed its quota of {over.resource} in flavor {over.flavor} by {over.by}; "
            "running workloads are kept, except in ClusterQueues with spec.overQuota"
            for over in impact.over_quota
        ),
    ]


def _affected(what: str, workloads: Sequence[Affected]) -> list[str]:
    if not workloads:
        return []
    several = len(workloads) > 1
    lines = [f"{len(workloads)} {'workloads' if several else 'workload'} {what}:"]
    lines += [f"  {one.namespace}/{one.name}" + (f": {one.why}" if one.why else "") for one in workloads[:_MAX_LISTED]]
    if len(workloads) > _MAX_LISTED:
        lines.append(f"  and {len(workloads) - _MAX_LISTED} more")
    return lines
