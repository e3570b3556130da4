"""The OpenAPI document for schemathesis, with names of objects that exist."""

from __future__ import annotations

from typing import Any

import schemathesis
from api_thread import NAMES
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig

from admission.api.openapi.document import describe
from admission.api.registry import AUDITS, REPORTS


def described() -> dict[str, Any]:
    """The document without the parameter `watch`, as watches do not end."""
    document = describe()
    for path in (AUDITS.collection(), f"{REPORTS.collection()}/topology"):  # these need a leader
        del document["paths"][path]
    for path in document["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict):
                operation["parameters"] = [each for each in operation["parameters"] if each["name"] != "watch"]
    return document


schema = schemathesis.openapi.from_dict(described(), config=SchemathesisConfig.from_dict({}))


@schema.hook
def before_generate_path_parameters(context: Any, strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw mostly names of objects that exist."""
    names = context.operation.path.count("{name}")
    there = {"namespace": st.just("a")} | ({"name": st.sampled_from(NAMES)} if names else {})
    wanted = {name: value for name, value in there.items() if f"{{{name}}}" in context.operation.path}
    known = st.fixed_dictionaries(wanted)
    return st.one_of(known, known, known, strategy)
