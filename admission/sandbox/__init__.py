"""Simulated Kubernetes cluster in one process, for demonstrations and tests: `Sandbox` starts its API server."""

from __future__ import annotations

from admission.sandbox.apiserver.errors import ApiError, SandboxError
from admission.sandbox.apiserver.objects import Object
from admission.sandbox.apiserver.requests import User
from admission.sandbox.auth.users import DEFAULT_USERS
from admission.sandbox.clock import Clock
from admission.sandbox.local import LocalClient
from admission.sandbox.sandbox import Sandbox

__all__ = ["DEFAULT_USERS", "ApiError", "Clock", "LocalClient", "Object", "Sandbox", "SandboxError", "User"]
