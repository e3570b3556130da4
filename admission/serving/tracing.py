"""OpenTelemetry tracing: spans of completed work, exported by a background thread. Imported only if it is enabled.

Each workload has its own trace, whose ids are derived from its uid: so spans from any replica or process, before or
after a restart, are part of the same trace. The exporter is configured by the standard environment variables, such as
OTEL_EXPORTER_OTLP_ENDPOINT.
"""

from __future__ import annotations

import threading
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from collections.abc import Mapping

    Attributes: TypeAlias = Mapping[str, str | int | float | bool]
    Exemplar: TypeAlias = dict[str, str]
    """`trace_id` and `span_id` of a sampled span in hexadecimal, as labels of a Prometheus exemplar."""

_CLOSE_SECONDS: Final = 2.0
"""Timeout of the export of remaining spans when the process ends, in case the collector does not answer."""


class Tracing:
    """Recorder of spans. Times are seconds since the epoch."""

    def __init__(self) -> None:
        release = version("sluice")
        resource = Resource.create({SERVICE_VERSION: release})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "sluice"}))
        self._ids = _IdGenerator()
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("sluice", release)

    def span(
        self, name: str, began: float, ended: float, attributes: Attributes, *, within: Exemplar | None = None
    ) -> Exemplar | None:
        """Record a span, as child of `within` or in a new trace; return None if it is not sampled."""
        parent = Context() if within is None else _child_of(int(within["trace_id"], 16), int(within["span_id"], 16))
        return self._record(name, began, ended, attributes, parent)

    def remote_child(
        self, name: str, began: float, ended: float, attributes: Attributes, *, headers: Mapping[str, str]
    ) -> Exemplar | None:
        """Record a span, as child of the caller's span if the request `headers` have one (W3C Trace Context)."""
        parent = TraceContextTextMapPropagator().extract(headers, Context())
        return self._record(name, began, ended, attributes, parent)

    def workload_span(self, uid: str, name: str, began: float, ended: float, attributes: Attributes) -> Exemplar | None:
        """Record a span of a part of a workload's lifecycle, as child of its root span."""
        trace, root = _ids_of(uid)
        if not self._is_sampled(trace):
            return None
        return self._record(name, began, ended, attributes, _child_of(trace, root))

    def workload_root(self, uid: str, name: str, began: float, ended: float, attributes: Attributes) -> None:
        """Record the root span of a finished workload: its whole lifecycle, the parent of its other spans."""
        self._ids.next = _ids_of(uid)
        try:
            self._record(name, began, ended, attributes, Context())
        finally:
            self._ids.next = None

    def exemplar(self, uid: str) -> Exemplar | None:
        """Return the exemplar for metrics that a workload contributes to; None if its trace is not sampled."""
        trace, root = _ids_of(uid)
        return _labels(trace, root) if self._is_sampled(trace) else None

    def close(self) -> None:
        """Export the remaining spans, within `_CLOSE_SECONDS`."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)

    def _record(
        self, name: str, began: float, ended: float, attributes: Attributes, parent: Context
    ) -> Exemplar | None:
        span = self._tracer.start_span(name, parent, attributes=attributes, start_time=_nanos(began))
        span.end(_nanos(max(began, ended)))
        context = span.get_span_context()
        return _labels(context.trace_id, context.span_id) if context.is_valid and context.trace_flags.sampled else None

    def _is_sampled(self, trace: int) -> bool:
        """Whether the trace is sampled. The sampler cannot use the root span, which is recorded after its children."""
        return self._provider.sampler.should_sample(Context(), trace, "workload").decision is Decision.RECORD_AND_SAMPLE


class _IdGenerator(RandomIdGenerator):
    """Generator of random ids, except for a span whose ids are set in advance."""

    def __init__(self) -> None:
        self.next: tuple[int, int] | None = None
        """(trace id, span id) of the next span; None: random."""

    def generate_trace_id(self) -> int:
        return self.next[0] if self.next is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.next[1] if self.next is not None else super().generate_span_id()


def _ids_of(uid: str) -> tuple[int, int]:
    """Return the ids of a workload's trace and root span, derived from its uid."""
    digest = sha256(uid.encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


def _child_of(trace: int, span: int) -> Context:
    """Return the context for children of a span."""
    context = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(context), Context())


def _labels(trace: int, span: int) -> Exemplar:
    return {"trace_id": f"{trace:032x}", "span_id": f"{span:016x}"}


def _nanos(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
