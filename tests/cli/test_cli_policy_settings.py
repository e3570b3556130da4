"""Policies in the settings: the configuration format of Kueue, and errors in it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from admission.cli.configuration.policy_settings import AdmissionFairSharingSettings
from admission.cli.configuration.settings import load_settings
from admission.cli.errors import InvalidSettings
from admission.controller.state.policy import ControllerPolicy, WaitForPodsReady
from admission.engine import AdmissionFairSharing, Budgets, Dependencies, Reservations, UserLimits
from admission.model.durations import parse_duration

DEFAULTS = Budgets(), Dependencies(), Reservations(), UserLimits()
DEFAULT = replace(ControllerPolicy(), engine=replace(ControllerPolicy().engine, policies=DEFAULTS))


def test_settings_without_a_policy_give_the_default_policy():
    assert load_settings({}).policy() == DEFAULT


def test_kueue_configuration_becomes_the_policy(config):
    policy = load_settings(
        {},
        config=config(
            """
            fairSharing: {preemptionStrategies: [LessThanInitialShare]}
            admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 5m, resourceWeights: {cpu: 2}}
            resources:
              excludeResourcePrefixes: [example.com]
              quotaCheckStrategy: IgnoreUndeclared
              transformations:
              - input: nvidia.com/mig-1g.5gb
                strategy: Replace
                outputs: {example.org/gpu-memory: 5Gi, credits: "0.5"}
            waitForPodsReady:
              timeout: 1h30m
              blockAdmission: true
              requeuingStrategy:
                {timestamp: Creation, backoffLimitCount: 5, backoffBaseSeconds: 10, backoffMaxSeconds: 99}
            """
        ),
    ).policy()
    engine = policy.engine
    assert engine.fair_sharing
    assert engine.preemption_strategies == ("LessThanInitialShare",)
    assert engine.policies == (*DEFAULTS, AdmissionFairSharing(7 * 86400.0, 300.0, {"cpu": 2.0}))
    assert engine.ignore_undeclared
    assert engine.accounting.excluded_prefixes == ("example.com",)
    (rule,) = engine.accounting.transformations
    assert rule.replace
    assert rule.outputs == {"example.org/gpu-memory": 5 * 2**30, "credits": Fraction(1, 2)}
    assert policy.pods_ready == WaitForPodsReady(
        timeout=5400.0, recovery_timeout=5400.0, block_admission=True, count_from_eviction=False, backoff_limit=5,
        backoff_base=10.0, backoff_max=99.0,
    )  # fmt: skip


def test_settings_for_the_process_that_estimates_starts_can_be_read_from_json():
    written = AdmissionFairSharingSettings.model_validate(
        {"usageHalfLifeTime": "1h30m", "usageSamplingInterval": "2.5ms", "resourceWeights": {"cpu": 2}}
    )
    json = written.model_dump(mode="json", by_alias=True)
    assert json["usageHalfLifeTime"] == "5400s"
    assert AdmissionFairSharingSettings.model_validate(json) == written


@pytest.mark.parametrize(
    ("text", "recovery"), [("{}", 1800.0), ("{timeout: 5m}", 300.0), ("{recoveryTimeout: 0s}", None)]
)
def test_recovery_timeout_defaults_to_the_timeout_and_0s_disables_it(config, text, recovery):
    settings = load_settings({}, config=config(f"waitForPodsReady: {text}"))
    assert settings.policy().pods_ready.recovery_timeout == recovery


def test_enable_false_disables_a_policy(config):
    file = config("waitForPodsReady: {enable: false, timeout: 5m}\nfairSharing: {enable: false}\n")
    assert load_settings({}, config=file).policy() == DEFAULT


def test_policy_can_be_set_as_json_in_the_environment(monkeypatch):
    monkeypatch.setenv("SLUICE_WAIT_FOR_PODS_READY", '{"timeout": "90s"}')
    assert load_settings({}).policy().pods_ready.timeout == 90.0
    monkeypatch.setenv("SLUICE_WAIT_FOR_PODS_READY", '{"timeout": "soon"}')
    with pytest.raises(InvalidSettings, match='SLUICE_WAIT_FOR_PODS_READY, timeout: "soon" is not a duration'):
        load_settings({})
    monkeypatch.setenv("SLUICE_WAIT_FOR_PODS_READY", "90s")
    with pytest.raises(InvalidSettings, match="SLUICE_WAIT_FOR_PODS_READY: must be an object"):
        load_settings({})
    monkeypatch.delenv("SLUICE_WAIT_FOR_PODS_READY")
    monkeypatch.setenv("SLUICE_RETENTION", "90d")
    with pytest.raises(InvalidSettings, match="does not contain JSON"):
        load_settings({})


COUNTER = "{name: memory, driver: gpu.example.com, deviceSelector: {cel: {expression: 'true'}}}"


def mapped(*mappings):
    return f"resources: {{deviceClassMappings: [{', '.join(mappings)}]}}"


def sourced(name, *sources):
    return f"{{name: {name}, deviceClassNames: [x], sources: [{', '.join(sources)}]}}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("waitForPodsReady: true", "waitForPodsReady in {}:1: "),
        ("waitForPodsReady: {timeout: 300}", "waitForPodsReady.timeout in {}:1: expected a duration such as 90s"),
        ("waitForPodsReady: {timeout: 0s}", "waitForPodsReady.timeout in {}:1: must be more than 0s"),
        ("waitForPodsReady: {timeout: 5 m}", 'waitForPodsReady.timeout in {}:1: "5 m" is not a duration'),
        ("waitForPodsReady: {timeout: 99999999h}", "longer than ten years"),
        ("waitForPodsReady: {timeOut: 5m}", 'waitForPodsReady.timeOut in {}:1: unknown field; did you mean "timeout"?'),
        (
            "waitForPodsReady: {requeuingStrategy: {timestamp: Now}}",
            'waitForPodsReady.requeuingStrategy.timestamp in {}:1: "Now" is not one of',
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffLimitCount: -1}}",
            "waitForPodsReady.requeuingStrategy.backoffLimitCount in {}:1: ",
        ),
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
            "fairSharing.preemptionStrategies in {}:1: must be one of",
        ),
        ("fairSharing: {preemptionStrategies: []}", "fairSharing.preemptionStrategies in {}:1: must be one of"),
        ("admissionFairSharing: {}", "admissionFairSharing.usageHalfLifeTime in {}:1: is required"),
        (
            "admissionFairSharing: {usageHalfLifeTime: 1h, resourceWeights: {cpu: -1}}",
            "admissionFairSharing.resourceWeights.cpu in {}:1: ",
        ),
        (
            "resources: {excludeResourcePrefixes: ['']}",
            "resources.excludeResourcePrefixes[0] in {}:1: must not be",
        ),
        (
            "resources: {transformations: [{input: cpu}, {input: cpu}]}",
            'resources.transformations[1].input in {}:1: "cpu" is transformed already',
        ),
        (
            "resources: {transformations: [{input: cpu, outputs: {credits: many}}]}",
            'resources.transformations[0].outputs.credits in {}:1: "many" is not a quantity',
        ),
        ("resources: {quotaCheckStrategy: Maybe}", "resources.quotaCheckStrategy in {}:1: "),
        (mapped("{name: a}"), "resources.deviceClassMappings[0].deviceClassNames in {}:1: is required"),
        (mapped("{name: a/b/c, deviceClassNames: [x]}"), "deviceClassMappings[0].name in {}:1: "),
        (mapped("{name: a, deviceClassNames: [x, x]}"), 'deviceClassNames[1] in {}:1: "x" is named twice'),
        (
            mapped("{name: a, deviceClassNames: [x]}, {name: a, deviceClassNames: [y]}"),
            'resources.deviceClassMappings[1].name in {}:1: "a" has a mapping already',
        ),
        (
            mapped("{name: a, deviceClassNames: [x]}, {name: b, deviceClassNames: [y, x]}"),
            'resources.deviceClassMappings[1].deviceClassNames[1] in {}:1: "x" is mapped to a already',
        ),
        (
            mapped(sourced("a", "{counter: " + COUNTER + "}"), sourced("b", "{counter: " + COUNTER + "}")),
            '"x" counts the counter memory as a already',
        ),
        (mapped(sourced("a", "{}")), "sources[0] in {}:1: exactly one source type must be set per entry"),
        (
            mapped(sourced("a", "{counter: " + COUNTER + "}", "{capacity: " + COUNTER + "}")),
            "sources in {}:1: cannot mix counter and capacity sources in the same mapping",
        ),
        (
            mapped(sourced("a", "{counter: " + COUNTER.replace("'true'", "'device.('") + "}")),
            "sources[0].counter.deviceSelector.cel.expression in {}:1: compilation failed",
        ),
        (mapped(sourced("a", "{capacity: " + COUNTER.replace("memory", "a/b/c") + "}")), "capacity.name in {}:1: "),
        (
            mapped(sourced("a", "{counter: " + COUNTER.replace("gpu.example.com", "GPU") + "}")),
            "counter.driver in {}:1",
        ),
    ],
)
def test_invalid_policy_is_reported_on_one_line_with_its_path(config, text, says):
    file = config(text)
    with pytest.raises(InvalidSettings) as raised:
        load_settings({}, config=file)
    assert says.format(file) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1h30m", 5400.0), ("7d", 604800.0), ("500ms", 0.5), ("1.5h", 5400.0), ("0", 0.0)],
)
def test_duration_is_parsed_to_seconds(text, seconds):
    assert parse_duration(text) == seconds
