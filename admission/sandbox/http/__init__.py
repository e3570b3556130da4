"""The sandbox over HTTP: verbs, lists and watches, tables, discovery, logs of pods, and faults that tests ask for."""
