"""Fault injection in the sandbox: timing, matching, limits, reproducibility by seed, faults of watches."""

import asyncio
import json
from contextlib import suppress

import aiohttp
import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
FAULTS = "/sandbox/faults"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def cause(http):
    """Return a function that installs fault rules."""

    async def install(*rules, seed=1):
        async with http.post(FAULTS, json={"seed": seed, "rules": list(rules)}) as response:
            assert response.status == 201, await response.text()

    return install


def config_map(name, **data):
    return {"metadata": {"name": name}, "data": data}


def exists(sandbox, name):
    return sandbox.local("tester").get("configmaps", "default", name) is not None


async def names(response, count):
    events = [json.loads(await response.content.readline()) for _ in range(count)]
    return [event["object"]["metadata"]["name"] for event in events]


# ---------------------------------------------------------------------- requests


@pytest.mark.parametrize(("when", "done"), [("before", False), ("after", True)])
async def test_error_fault_occurs_before_or_after_the_write(sandbox, http, cause, when, done):
    match = {"verb": "create", "resource": "configmaps"}
    await cause({"match": match, "do": "error", "code": 503, "retryAfter": 2, "when": when})
    async with http.post(MAPS, json=config_map("a")) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "2")
        status = await response.json()
    assert (status["reason"], status["details"]) == ("ServiceUnavailable", {"retryAfterSeconds": 2})
    assert exists(sandbox, "a") is done


@pytest.mark.parametrize(("when", "done"), [("before", False), ("after", True)])
async def test_connection_is_dropped_before_or_after_the_write(sandbox, http, cause, when, done):
    await cause({"match": {"verb": "write"}, "do": "drop", "when": when})
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await http.post(MAPS, json=config_map("a"))
    assert exists(sandbox, "a") is done


async def struck(http):
    """Wait until the rule has affected a request, and that request has got as far as its delay."""
    number = 0
    while not number:
        async with http.get(FAULTS) as response:
            number = (await response.json())["rules"][0]["struck"]
    await round_trips(http)


async def round_trips(http):
    for _ in range(3):
        async with http.get(FAULTS) as response:
            await response.read()


@pytest.mark.parametrize(("when", "done"), [("before", False), ("after", True)])
async def test_write_of_a_client_that_leaves_is_done_only_if_the_delay_comes_after_it(sandbox, http, cause, when, done):
    await cause({"match": {"verb": "create"}, "do": "delay", "seconds": 600, "when": when})
    sending = asyncio.create_task(http.post(MAPS, json=config_map("a")))
    await struck(http)
    assert not sending.done()
    assert exists(sandbox, "a") is done
    sending.cancel()
    await round_trips(http)  # the server notices that the connection was closed
    sandbox.faults.remove()
    await round_trips(http)
    assert exists(sandbox, "a") is done


async def test_delayed_request_continues_when_the_rules_are_removed(sandbox, http, cause):
    await cause({"match": {"verb": "create"}, "do": "delay", "seconds": 600})
    sending = asyncio.create_task(http.post(MAPS, json=config_map("a")))
    await struck(http)
    assert not exists(sandbox, "a")
    sandbox.faults.remove()
    async with await sending as response:
        assert response.status == 201
    assert exists(sandbox, "a")


async def test_rejected_request_keeps_its_own_error_despite_a_fault_after_it(http, cause):
    async with http.post(MAPS, json=config_map("a")) as response:
        assert response.status == 201
    await cause({"do": "error", "when": "after"})
    async with http.post(MAPS, json=config_map("a")) as response:
        assert (response.status, (await response.json())["reason"]) == (409, "AlreadyExists")
    async with http.get(f"{MAPS}/none") as response:
        assert response.status == 404


@pytest.mark.parametrize(
    "match",
    [{"verb": "get"}, {"resource": ["pods", "configmaps/status"]}, {"user": "alice"}, {"namespace": "kube-system"},
     {"group": "batch"}, {"name": "b"}],
)  # fmt: skip
async def test_request_that_does_not_match_the_rule_is_unaffected(http, cause, match):
    await cause({"match": match, "do": "error"})
    async with http.post(MAPS, json=config_map("a")) as response:
        assert response.status == 201


async def test_faults_are_counted_limited_and_removed(http, cause):
    await cause({"match": {"verb": "get", "resource": "configmaps"}, "do": "error", "limit": 2})
    statuses = []
    for _ in range(4):
        async with http.get(f"{MAPS}/none") as response:
            statuses.append(response.status)
    assert statuses == [500, 500, 404, 404]
    async with http.get(FAULTS) as response:
        (rule,) = (await response.json())["rules"]
    assert (rule["do"], rule["matched"], rule["struck"]) == ("error", 4, 2)
    await cause({"do": "error"})
    async with http.delete(FAULTS) as response:
        assert response.status == 200
    async with http.get(f"{MAPS}/none") as response:
        assert response.status == 404


async def struck_names(http, order):
    """Return the names of the objects whose GET was answered with 500."""
    failed = set()
    for name in order:
        async with http.get(f"{MAPS}/{name}") as response:
            if response.status == 500:
                failed.add(name)
    return failed


async def test_seed_decides_which_objects_are_struck_regardless_of_request_order(http, cause):
    rule = {"match": {"verb": "get"}, "probability": 0.5, "do": "error"}
    order = [f"m{number}" for number in range(40)]
    await cause(rule, seed=3)
    first = await struck_names(http, order)
    await cause(rule, seed=3)
    again = await struck_names(http, reversed(order))
    await cause(rule, seed=4)
    other = await struck_names(http, order)
    assert 0 < len(first) < 40
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"do": "nothing"}, "rules.0.do: Input should be 'error'"),
        ({"do": "error", "code": 200}, "rules.0.code: Input should be greater than or equal to 400"),
        ({"do": "error", "match": {"verbs": "get"}}, "rules.0.match.verbs: Extra inputs are not permitted"),
        ({"do": "error", "probability": 2}, "rules.0.probability: Input should be less than or equal to 1"),
    ],
)
async def test_invalid_rule_is_rejected_with_the_field_name(http, rule, text):
    async with http.post(FAULTS, json={"rules": [rule]}) as response:
        assert response.status == 400
        assert (await response.json())["message"].startswith(text)


# ---------------------------------------------------------------------- watches


@pytest.fixture
async def started(sandbox, http):
    """Create five ConfigMaps, `a` to `e`; return the resource version from before."""
    async with http.get(MAPS) as response:
        version = (await response.json())["metadata"]["resourceVersion"]
    client = sandbox.local("tester")
    for name in "abcde":
        await client.create("configmaps", "default", config_map(name))
    return version


def watch(http, version, **more):
    return http.get(MAPS, params={"watch": "1", "resourceVersion": version, **more})


async def test_expired_fault_ends_watch_with_410(http, cause, started):
    await cause({"match": {"verb": "watch"}, "do": "expired", "limit": 1})
    async with watch(http, started) as response:
        event = json.loads(await response.content.readline())
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert await response.content.read() == b""
    async with watch(http, started) as response:
        assert await names(response, 5) == list("abcde")


async def test_duplicate_fault_repeats_earlier_events_in_a_resumed_watch(sandbox, http, cause, started):
    now = str(sandbox.registry.store.revision)
    await cause({"match": {"verb": "watch"}, "do": "duplicate", "events": 2})
    async with watch(http, now) as response:
        assert await names(response, 2) == ["d", "e"]
        await sandbox.local("tester").create("configmaps", "default", config_map("f"))
        assert await names(response, 1) == ["f"]


async def test_reorder_fault_keeps_the_order_of_events_of_each_object(sandbox, http, cause, started):
    client = sandbox.local("tester")
    for name in "abcde":
        await client.patch("configmaps", "default", name, {"data": {"x": "1"}})
    await cause({"match": {"verb": "watch"}, "do": "reorder", "seconds": 0})
    async with watch(http, started) as response:
        events = [json.loads(await response.content.readline()) for _ in range(10)]
    told = [(event["object"]["metadata"]["name"], event["type"]) for event in events]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions != sorted(versions)
    assert [name for name, _ in told] != sorted(name for name, _ in told)
    assert versions[-1] == max(versions)
    for name in "abcde":
        assert [kind for known, kind in told if known == name] == ["ADDED", "MODIFIED"]


async def test_watch_cut_off_while_reordering_has_no_gap_before_its_last_event(sandbox, http, cause, started):
    client = sandbox.local("tester")
    for number in range(120):  # more than the buffers of an unread connection hold
        await client.create("configmaps", "default", config_map(f"m{number}", text="x" * 50_000))
    await cause({"match": {"verb": "watch"}, "do": "reorder", "seconds": 0})
    async with watch(http, started) as response:
        lines = [await response.content.readline()]
        await cause({"match": {"verb": "watch"}, "do": "closeWatches", "abrupt": True})
        with suppress(aiohttp.ClientPayloadError):
            lines += [line async for line in response.content]
    told = {int(json.loads(line)["object"]["metadata"]["resourceVersion"]) for line in lines if line.endswith(b"\n")}
    assert told == set(range(int(started) + 1, max(told) + 1))


async def test_close_watches_fault_ends_open_watches(http, cause, started):
    async with watch(http, started) as response:
        await names(response, 5)
        await cause({"match": {"verb": "watch", "resource": "configmaps"}, "do": "closeWatches"})
        assert await response.content.read() == b""


async def test_abrupt_close_watches_fault_breaks_open_watches_without_a_traceback(http, cause, started, caplog):
    async with watch(http, started) as response:
        await names(response, 5)
        await cause({"match": {"verb": "watch"}, "do": "closeWatches", "abrupt": True})
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


async def test_watch_continues_while_its_rule_does_not_strike(sandbox, http, cause, started):
    async with watch(http, started) as response:
        await names(response, 5)
        await cause({"match": {"verb": "watch"}, "do": "closeWatches", "probability": 0})
        await sandbox.local("tester").create("configmaps", "default", config_map("f"))
        assert await names(response, 1) == ["f"]
