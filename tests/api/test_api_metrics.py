"""`/metrics`: negotiation of the text format, and limits on the number of series."""

from __future__ import annotations

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import Counter
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from admission.api.metrics_endpoint import PATH, Fixed, Metrics
from admission.serving.metrics import OTHER, MetricChildren


def children(most: int) -> MetricChildren[Counter]:
    return MetricChildren(
        Counter("sluice_tried_total", "Tries.", ("queue", "reason"), registry=None), ("queue", "reason"), limit=most
    )


def samples(counted: MetricChildren[Counter]) -> dict[tuple[str, ...], float]:
    (family,) = counted.metric.collect()
    return {tuple(sample.labels.values()): sample.value for sample in family.samples if sample.name.endswith("_total")}


async def test_metrics_are_served_in_the_requested_text_format():
    gauge = GaugeMetricFamily("sluice_x", 'says "b" and \\', labels=["queue"])
    gauge.add_metric(['C:\\ "x"\n'], 2)
    counted = children(9)
    counted["a", "b"].inc()

    async def gather():
        return [counted.metric, Fixed([gauge])]

    app = web.Application()
    app.router.add_get(PATH, Metrics(gather).get)
    async with TestClient(TestServer(app)) as client:
        async with client.get(PATH) as answer:
            assert answer.content_type == "text/plain"
            plain = {family.name: family for family in text_string_to_metric_families(await answer.text())}
        async with client.get(PATH, headers={"Accept": "application/openmetrics-text; version=1.0.0"}) as answer:
            assert answer.content_type == "application/openmetrics-text"
            families = {family.name for family in openmetrics.text_string_to_metric_families(await answer.text())}
    assert plain.keys() == families == {"sluice_tried", "sluice_x"}
    (sample,) = plain["sluice_x"].samples
    assert (sample.labels, sample.value) == ({"queue": 'C:\\ "x"\n'}, 2)


def test_label_sets_beyond_the_limit_are_counted_as_other():
    counted = children(2)
    for queue in "abcd":
        counted[queue, "r"].inc()
    assert samples(counted) == {("a", "r"): 1, ("b", "r"): 1, (OTHER, OTHER): 2}


def test_removed_series_restarts_at_zero():
    counted = children(2)
    for queue in "abc":
        counted[queue, "r"].inc()
    counted.keep(lambda values: values[0] == "b")
    assert samples(counted) == {("b", "r"): 1, (OTHER, OTHER): 1}
    counted["a", "r"].inc()
    assert samples(counted)["a", "r"] == 1
