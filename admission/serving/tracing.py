"""Traces by OpenTelemetry: spans of work that is over, sent from a thread of its own. Imported only where it is on.

Each workload has a trace of its own, whose ids follow from its uid: whatever replica or process tells of it, before or
after a restart, its spans come together. Where spans go is said by the usual variables (OTEL_EXPORTER_OTLP_ENDPOINT).
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
    """`trace_id` and `span_id` of a span that is sent, as labels of an exemplar."""

_CLOSE_SECONDS: Final = 2.0
"""For what was not sent yet when the process ends; where nobody takes it, nothing waits for longer."""


class Tracing:
    """Records spans. Times are seconds since the epoch."""

    def __init__(self) -> None:
        release = version("sluice")
        resource = Resource.create({SERVICE_VERSION: release})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "sluice"}))
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("sluice", release)

    def step(
        self, name: str, began: float, ended: float, attributes: Attributes, *, within: Exemplar | None = None
    ) -> Exemplar | None:
        """A span in the trace of another one, or in a new one; None if it is not sampled."""
        parent = Context() if within is None else _within(int(within["trace_id"], 16), int(within["span_id"], 16))
        return self._record(name, began, ended, attributes, parent)

    def review(
        self, name: str, began: float, ended: float, attributes: Attributes, *, headers: Mapping[str, str]
    ) -> Exemplar | None:
        """A span in the trace that the caller has begun, if its `headers` tell of one (W3C Trace Context)."""
        parent = TraceContextTextMapPropagator().extract(headers, Context())
        return self._record(name, began, ended, attributes, parent)

    def of_workload(self, uid: str, name: str, began: float, ended: float, attributes: Attributes) -> Exemplar | None:
        """A part of the way of a workload."""
        trace, root = _ids_of(uid)
        if not self._samples(trace):
            return None
        return self._record(name, began, ended, attributes, _within(trace, root))

    def whole(self, uid: str, name: str, began: float, ended: float, attributes: Attributes) -> None:
        """The whole way of a workload, once it is over: what its parts are within."""
        self._ids.next = _ids_of(uid)
        try:
            self._record(name, began, ended, attributes, Context())
        finally:
            self._ids.next = None

    def exemplar(self, uid: str) -> Exemplar | None:
        """For numbers that a workload has contributed to."""
        trace, root = _ids_of(uid)
        return _labels(trace, root) if self._samples(trace) else None

    def close(self) -> None:
        """Send what waits, if somebody takes it."""
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

    def _samples(self, trace: int) -> bool:
        """Whether the trace is sent: its parts are recorded before their parent, by which a sampler would go."""
        return self._provider.sampler.should_sample(Context(), trace, "workload").decision is Decision.RECORD_AND_SAMPLE


class _Ids(RandomIdGenerator):
    """Random ids, but for a span whose ids are given."""

    def __init__(self) -> None:
        self.next: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return self.next[0] if self.next is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.next[1] if self.next is not None else super().generate_span_id()


def _ids_of(uid: str) -> tuple[int, int]:
    """Trace and root span of a workload."""
    digest = sha256(uid.encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


def _within(trace: int, span: int) -> Context:
    context = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(context), Context())


def _labels(trace: int, span: int) -> Exemplar:
    return {"trace_id": f"{trace:032x}", "span_id": f"{span:016x}"}


def _nanos(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
