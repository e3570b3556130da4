"""`/metrics` in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from admission.api.metrics import Family, exposition, single


def test_names_help_types_and_labels_are_escaped():
    families = [
        Family("a_total", "counter", "of a \\ and\na line", [(('C:\\ "x"\n', "é"), 2), (("", "0"), 0)], ("one", "two")),
        single("b_bytes", "gauge", 'says "b"', 0.5),
        Family("c", "gauge", "none yet", [], ("x",)),
    ]
    assert exposition(families).split("\n") == [
        r"# HELP a_total of a \\ and\na line",
        "# TYPE a_total counter",
        r'a_total{one="C:\\ \"x\"\n",two="é"} 2',
        'a_total{one="",two="0"} 0',
        '# HELP b_bytes says "b"',
        "# TYPE b_bytes gauge",
        "b_bytes 0.5",
        "# HELP c none yet",
        "# TYPE c gauge",
        "",
    ]
