"""Calendars of quota: recurrence, daylight saving, leap days; and the sentences about calendars that cannot be."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.model.calendars import Calendar
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_manifest
from admission.model.queues import quota_changes, quotas_at

GPU = "nvidia.com/gpu"


def entry(start: str, end: str, rule: str = "", *, name: str = "nights", quota: str = "16", **more):
    quotas = [{"flavor": "h100", "resource": GPU, "nominalQuota": quota}]
    return {"name": name, "start": start, "end": end, "recurrence": rule, "quotas": quotas, **more}


def calendar(*entries, zone: str = "Europe/Berlin") -> Calendar:
    return Calendar.model_validate({"timeZone": zone, "entries": entries})


def queue(given):
    quota = {"name": GPU, "nominalQuota": "8"}
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": [quota]}]}]
    return parse_manifest(
        {
            "apiVersion": "sluice.dev/v1",
            "kind": "ClusterQueue",
            "metadata": {"name": "ml"},
            "spec": {"resourceGroups": groups, "calendar": given},
        }
    )


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:16]


def changes(found: Calendar, first: str, most: int) -> list[str]:
    return [utc(each) for each in found.changes(at(first), most=most)]


def test_nights_are_nights_on_both_sides_of_daylight_saving():
    nights = calendar(entry("2026-10-01T20:00", "2026-10-02T06:00", "FREQ=DAILY"))
    # On the 25th clocks are set back from 3:00 to 2:00: that night takes eleven hours.
    assert changes(nights, "2026-10-23T12:00", 6) == [
        "2026-10-23T18:00", "2026-10-24T04:00", "2026-10-24T18:00", "2026-10-25T05:00",
        "2026-10-25T19:00", "2026-10-26T05:00",
    ]  # fmt: skip
    # On 28 March they are set ahead from 2:00 to 3:00: nine hours.
    assert changes(nights, "2027-03-27T12:00", 4) == [
        "2027-03-27T19:00", "2027-03-28T04:00", "2027-03-28T18:00", "2027-03-29T04:00",
    ]  # fmt: skip


def test_time_that_does_not_exist_is_an_hour_later_and_one_that_comes_twice_is_the_first():
    found = calendar(entry("2026-01-01T02:30", "2026-01-01T02:45", "FREQ=DAILY"))
    assert changes(found, "2027-03-28T00:00", 2) == ["2027-03-28T01:30", "2027-03-28T01:45"]
    assert changes(found, "2026-10-24T12:00", 3) == ["2026-10-25T00:30", "2026-10-25T00:45", "2026-10-26T01:30"]
    # In the hour that comes a second time, the wall clock is before a start that is over.
    assert changes(found, "2026-10-25T01:10", 1) == ["2026-10-26T01:30"]
    whole_days = calendar(entry("2026-01-01T02:20", "2026-01-02T02:20", "FREQ=DAILY"))
    # It is 3:10, as clocks were set ahead at 2:00. The day before ends, and this one begins, at 2:20, which is 3:20.
    assert whole_days.at(at("2027-03-28T01:10")) == whole_days.at(at("2027-03-27T12:00"))


def test_leap_days_and_last_weekdays_of_months():
    leap = calendar(entry("2026-02-28T00:00", "2026-03-01T00:00", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29"), zone="UTC")
    assert changes(leap, "2026-01-01T00:00", 2) == ["2028-02-29T00:00", "2028-03-01T00:00"]
    last = calendar(
        entry("2026-01-30T00:00", "2026-01-31T00:00", "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"), zone="UTC"
    )
    assert changes(last, "2026-05-01T00:00", 4)[::2] == ["2026-05-29T00:00", "2026-06-30T00:00"]


def test_excepted_days_until_and_count():
    weekends = entry("2026-12-05T00:00", "2026-12-07T00:00", "FREQ=WEEKLY;UNTIL=20261226", exceptDays=["2026-12-19"])
    assert changes(calendar(weekends, zone="UTC"), "2026-12-01T00:00", 20)[::2] == [
        "2026-12-05T00:00", "2026-12-12T00:00", "2026-12-26T00:00",
    ]  # fmt: skip
    evenings = entry("2026-12-01T20:00", "2026-12-01T22:00", "FREQ=DAILY;UNTIL=20261202")
    assert changes(calendar(evenings, zone="UTC"), "2026-12-01T00:00", 20)[::2] == [
        "2026-12-01T20:00",
        "2026-12-02T20:00",
    ]
    long = entry("2026-12-01T20:00", "2026-12-03T02:00", "FREQ=DAILY;COUNT=2", exceptDays=["2026-12-04"])
    (applied,) = calendar(long, zone="UTC").at(at("2026-12-02T23:00")).values()
    assert utc(applied.until) == "2026-12-04T02:00"  # the second one, which began before the first one ends
    over = entry("2026-12-01T20:00", "2026-12-05T20:00", "FREQ=DAILY;COUNT=2", exceptDays=["2026-12-02"])
    (applied,) = calendar(over, zone="UTC").at(at("2026-12-04T12:00")).values()
    assert utc(applied.until) == "2026-12-05T20:00"
    twice = calendar(entry("2026-12-05T00:00", "2026-12-05T01:00", "FREQ=DAILY;COUNT=2"), zone="UTC")
    assert changes(twice, "2026-12-01T00:00", 20)[::2] == ["2026-12-05T00:00", "2026-12-06T00:00"]


def test_first_entry_that_applies_counts_and_usual_quota_is_kept():
    deadline = entry("2026-12-10T00:00", "2026-12-13T00:00", name="deadline", quota="24")
    ml = queue({"timeZone": "UTC", "entries": [deadline, entry("2026-12-01T20:00", "2026-12-02T06:00", "FREQ=DAILY")]})

    def quota(text: str) -> tuple[str, str | None]:
        found = quotas_at(ml, at(text)).spec.resource_groups[0].flavors[0].resources[0]
        return found.nominal_quota, found.current_quota

    assert quota("2026-12-05T12:00") == ("8", None)
    assert quota("2026-12-05T21:00") == ("8", "16")
    assert quota("2026-12-10T21:00") == ("8", "24")
    assert quota("2026-12-13T00:00") == ("8", "16")  # in the middle of a night
    assert [utc(when) for when, _ in quota_changes(ml, at("2026-12-09T12:00"), at("2026-12-13T12:00"))] == [
        "2026-12-09T20:00", "2026-12-10T00:00", "2026-12-13T00:00", "2026-12-13T06:00",
    ]  # fmt: skip


RULES = st.sampled_from(
    [
        "",
        "FREQ=DAILY",
        "FREQ=DAILY;INTERVAL=3",
        "FREQ=WEEKLY;BYDAY=SA,SU",
        "FREQ=MONTHLY;BYMONTHDAY=-1",
        "FREQ=DAILY;COUNT=5",
    ]
)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe"])


@given(
    starts=st.lists(st.tuples(st.integers(0, 400 * 24), st.integers(1, 100), RULES), min_size=1, max_size=3),
    zone=ZONES,
    instant=st.integers(0, 500 * 24 * 60),
)
def test_nothing_changes_between_two_changes(starts, zone, instant):
    first = datetime(2026, 1, 1)  # noqa: DTZ001

    def local(hours: int) -> str:
        return datetime.fromtimestamp(first.replace(tzinfo=UTC).timestamp() + 3600 * hours, UTC).isoformat()[:16]

    found = calendar(
        *(
            entry(local(begin), local(begin + hours), rule, name=f"e{number}", quota=str(number))
            for number, (begin, hours, rule) in enumerate(starts)
        ),
        zone=zone,
    )
    now = first.replace(tzinfo=ZoneInfo("UTC")).timestamp() + 60 * instant

    def given_at(when: float) -> dict:
        return {key: each.nominal_quota for key, each in found.at(when).items()}

    following = found.next_change(now) or now + 86400 * 40
    assert following > now
    for share in (0.01, 0.3, 0.7, 0.999):
        assert given_at(now + share * (following - now)) == given_at(now)


@pytest.mark.parametrize(
    ("wrong", "path", "sentence"),
    [
        ({"recurrence": "FREQ=HOURLY"}, "recurrence", "needs FREQ=DAILY, WEEKLY, MONTHLY or YEARLY"),
        ({"recurrence": "every night"}, "recurrence", "needs FREQ=DAILY"),
        ({"recurrence": "FREQ=DAILY;INTERVAL=0"}, "recurrence", "INTERVAL=0 is no valid value"),
        ({"recurrence": "FREQ=DAILY;BYDAY=MO"}, "recurrence", '"BYDAY" cannot be used with FREQ=DAILY'),
        ({"recurrence": "FREQ=DAILY;FREQ=DAILY"}, "recurrence", "FREQ is given twice"),
        ({"recurrence": "FREQ=DAILY;UNTIL=20261231T000000Z"}, "recurrence", "a day or a local time"),
        ({"recurrence": "FREQ=DAILY;UNTIL=20261331"}, "recurrence", "is no recurrence rule"),
        ({"recurrence": "FREQ=DAILY;UNTIL=20251231"}, "recurrence", "the rule matches no day from 2026-12-01T20:00 on"),
        ({"recurrence": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "recurrence", "the rule matches no day"),
        ({"recurrence": "FREQ=WEEKLY;BYDAY=\n"}, "recurrence", "is no valid value"),
        ({"end": "2026-12-01T20:00:00"}, "end", "is not after start"),
        ({"start": "2026-12-01T20:00Z"}, "start", "write it as 2026-11-30T20:00, without a zone"),
        ({"start": "2026-02-30T20:00"}, "start", "is no time on a wall clock"),
        ({"exceptDays": ["tomorrow"]}, "exceptDays[0]", "is no day"),
    ],
)
def test_faults_of_an_entry_are_one_sentence_with_their_path(wrong, path, sentence):
    with pytest.raises(InvalidObject) as error:
        queue({"entries": [entry("2026-12-01T20:00", "2026-12-02T06:00") | wrong]})
    ((found, text),) = error.value.causes
    assert found == f"spec.calendar.entries[0].{path}"
    assert sentence in text


def test_faults_of_a_calendar_name_what_does_not_fit():
    with pytest.raises(InvalidObject) as error:
        queue({"timeZone": "Berlin", "entries": [entry("2026-12-01T20:00", "2026-12-02T06:00")]})
    assert error.value.causes[0][0] == "spec.calendar.timeZone"
    other = entry("2026-12-01T20:00", "2026-12-02T06:00")
    other["quotas"] = [{"flavor": "a100", "resource": GPU, "nominalQuota": "1"}]
    with pytest.raises(InvalidObject) as error:
        queue({"entries": [other]})
    expected = "resourceGroups have no quota of nvidia.com/gpu in flavor a100"
    assert error.value.causes == [("spec.calendar.entries[0].quotas[0]", expected)]
    with pytest.raises(InvalidObject) as error:
        queue({"entries": [other | {"quotas": entry("", "")["quotas"]}] * 2})
    assert error.value.causes == [("spec.calendar.entries[1].name", '"nights" is used already')]
