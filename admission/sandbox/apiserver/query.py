"""Query parameters of a request, and the options (CreateOptions, DeleteOptions ...) that they encode."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from admission.sandbox.apiserver import errors
from admission.sandbox.apiserver.errors import bad_request, forbidden, invalid, required, unsupported
from admission.sandbox.apiserver.requests import DeleteOptions

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

_POLICIES = ("Foreground", "Background", "Orphan")
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


class Query:
    """Query parameters by name; a missing one is the empty string."""

    def __init__(self, text: str) -> None:
        self._values = dict(parse_qsl(text, keep_blank_values=True)) if text else {}

    def get(self, name: str) -> str:
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        """Return whether a boolean parameter is present and not `false` or `0`."""
        return name in self._values and self._values[name].lower() not in ("false", "0")

    def integer(self, name: str) -> int | None:
        """Return an integer parameter; None if it is missing. Raises ApiError (400)."""
        text = self._values.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError as error:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error

    def write_options(self, kind: str) -> tuple[Object, bool, str]:
        """Return the options of a create, update or patch.

        They are the CreateOptions, UpdateOptions or PatchOptions (`kind`) that webhooks receive, whether it is a dry
        run, and the field validation directive (`Warn` by default). Raises ApiError (422).
        """
        options: Object = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if not self._values:
            return options, False, "Warn"
        dry_run = self._dry_run(kind)
        if dry_run:
            options["dryRun"] = ["All"]
        if manager := self.get("fieldManager"):
            options["fieldManager"] = manager
        validation = self.get("fieldValidation")
        if validation:
            if validation not in _VALIDATIONS:
                cause = unsupported("fieldValidation", validation, _VALIDATIONS)
                raise errors.unprocessable("meta.k8s.io", kind, "", [cause])
            options["fieldValidation"] = validation
        if self.flag("force"):
            options["force"] = True
        return options, dry_run, validation or "Warn"

    def check_patch(self, *, apply: bool) -> None:
        """Check `force` (only for server-side apply) and `fieldManager` (required for it). Raises ApiError (422)."""
        if apply and not self.get("fieldManager"):
            cause = required("fieldManager", "is required for apply patch")
        elif not apply and "force" in self._values:
            cause = forbidden("force", "may not be specified for non-apply patch")
        else:
            return
        raise errors.unprocessable("meta.k8s.io", "PatchOptions", "", [cause])

    def delete_options(self, body: Object | None) -> tuple[DeleteOptions, Object, bool]:
        """Return the options of a delete, the same as webhooks receive them, and whether it is a dry run.

        They come from the body or, without one, from the query. Raises ApiError (400, 422).
        """
        if body:
            preconditions = body.get("preconditions", {})
            grace, policy, dry_run = (
                body.get("gracePeriodSeconds"),
                body.get("propagationPolicy"),
                bool(body.get("dryRun")),
            )
            orphan = body.get("orphanDependents")
        else:
            preconditions, orphan = {}, None
            grace, policy = self.integer("gracePeriodSeconds"), self.get("propagationPolicy") or None
            dry_run = self._dry_run("DeleteOptions")
            if "orphanDependents" in self._values:
                orphan = self.flag("orphanDependents")
        if policy is not None and orphan is not None:
            cause = invalid("propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set")
            raise errors.unprocessable("meta.k8s.io", "DeleteOptions", "", [cause])
        if policy is None and orphan is not None:
            policy = "Orphan" if orphan else "Background"
        if policy is not None and policy not in _POLICIES:
            cause = unsupported("propagationPolicy", policy, (*_POLICIES, "nil"))
            raise errors.unprocessable("meta.k8s.io", "DeleteOptions", "", [cause])
        shown: Object = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
        for key, value in (("gracePeriodSeconds", grace), ("preconditions", preconditions or None),
                           ("propagationPolicy", policy), ("dryRun", ["All"] if dry_run else None)):  # fmt: skip
            if value is not None:
                shown[key] = value
        options = DeleteOptions(grace, policy, preconditions.get("uid"), preconditions.get("resourceVersion"))
        return options, shown, dry_run

    def _dry_run(self, kind: str) -> bool:
        value = self.get("dryRun")
        if value not in ("", "All"):
            cause = unsupported("dryRun", value, ("All",))
            raise errors.unprocessable("meta.k8s.io", kind, "", [cause])
        return value == "All"


def check_watch(query: Query) -> None:
    """Validate `sendInitialEvents` and `resourceVersionMatch` of a watch (streaming lists). Raises ApiError (422)."""
    match, initial = query.get("resourceVersionMatch"), "sendInitialEvents" in query._values
    causes = []
    if initial and match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(forbidden("resourceVersionMatch", text))
        if match:
            causes.append(unsupported("resourceVersionMatch", match, ("NotOlderThan",)))
    elif match and not initial:
        causes.append(
            forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        )
    if causes:
        raise errors.unprocessable("meta.k8s.io", "ListOptions", "", causes)


def start_version(query: Query) -> int | None:
    """Return the resourceVersion at which a watch starts; 0: any; None: existing objects, then changes from now on.

    Raises ApiError (500) for a text that is no number.
    """
    text = query.get("resourceVersion")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 20:
        message = invalid("resourceVersion", text, "invalid syntax").message
        raise errors.ApiError(500, "", f"resourceVersion: {message}")
    return int(text)
