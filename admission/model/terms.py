"""Terms of admission: what the user of a workload permits, or waits for, beside quota."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


_TARGET: Final = re.compile(r"(ok|any)\(\s*(?:([a-z0-9.]+)/)?([a-z0-9]([-a-z0-9.]*[a-z0-9])?)\s*\)")
MOST_DEPENDENCIES: Final = 32


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another workload of the namespace after which a workload starts."""

    name: str
    kind: str
    """Its kind in lower case, such as `job`; empty: of any kind."""
    ok: bool
    """Whether it must have succeeded, or just ended."""

    @property
    def target(self) -> str:
        """Kind, if given, and name."""
        return f"{self.kind}/{self.name}" if self.kind else self.name

    def __str__(self) -> str:
        return f"{'ok' if self.ok else 'any'}({self.target})"


def parse_after(text: str) -> tuple[Dependency, ...]:
    """Return the dependencies of an annotation such as `ok(prep),any(jobset/clean)`. Raises ValueError."""
    found = []
    for part in text.split(","):
        match = _TARGET.fullmatch(part.strip())
        if match is None:
            raise ValueError("must be a list such as ok(prep),any(jobset/clean)")
        found.append(Dependency(match[3], match[2] or "", match[1] == "ok"))
    if len(found) > MOST_DEPENDENCIES:
        raise ValueError(f"must have {MOST_DEPENDENCIES} entries at most")
    return tuple(found)


def parse_at_most(text: str) -> tuple[str, int]:
    """Return name and size of an annotation such as `sweep=4`. Raises ValueError."""
    match = re.fullmatch(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)=([1-9][0-9]{0,8})", text.strip())
    if match is None:
        raise ValueError("must be the name of a set and a number, such as sweep=4")
    return match[1], int(match[3])


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one workload; most have `NO_TERMS`."""

    may_borrow: bool = True
    """Whether it may use more than the nominal quota of its ClusterQueue."""
    preempts: bool = True
    """Whether others may be preempted for it."""
    after: tuple[Dependency, ...] = ()
    """Workloads after which it starts."""
    at_most: tuple[str, int] | None = None
    """Name of a set of workloads of the namespace to which it belongs, and how many of them may be admitted at once."""
    flavors: tuple[str, ...] = ()
    """The flavors that it may get; empty: any. Of a variant in concurrent admission, and so not of a user."""
    variant_of: str = ""
    """Uid of what its variants have in common; empty: it is none."""

    def document(self) -> dict[str, Any] | None:
        """Return the terms as JSON for the database; None: there are none."""
        if self == NO_TERMS:
            return None
        flags = {"cannotBorrow": not self.may_borrow, "cannotPreempt": not self.preempts}
        after = {"after": ",".join(map(str, self.after))} if self.after else {}
        at_most = {"atMost": "{}={}".format(*self.at_most)} if self.at_most is not None else {}
        return {**{name: True for name, is_set in flags.items() if is_set}, **after, **at_most}

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> Terms:
        """Return the terms of a document; those that this version does not know are ignored."""
        if not document:
            return NO_TERMS
        after, at_most = document.get("after"), document.get("atMost")
        return cls(
            may_borrow=not document.get("cannotBorrow"),
            preempts=not document.get("cannotPreempt"),
            after=parse_after(after) if after else (),
            at_most=parse_at_most(at_most) if at_most else None,
        )


NO_TERMS: Final = Terms()
