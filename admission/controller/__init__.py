"""Controller: connects cluster, engine and store, and runs the reconcile loop that every Job passes through.

The way of a Job; what comes in again, when its pods run and when it finishes, takes the same way:

    intake/watches.py          an informer has seen the Job, and puts it into the inbox
    controller.py              `_cycle`: processes the messages of the inbox, decides, commits, sends
    routing.py                 finds what a message concerns
    workloads/children.py      an object is part of another one, or a pod of a group (`pod_groups.py`), or a workload
    workloads/reconciler.py    asks the kind what the object says, and applies the change that a rule makes of it
    workloads/transition.py    the rule for each trigger; that for a new object is `arrival` in `observed.py`
    state/leader_state.py      a change becomes events for the engine and rows for the next commit
    decisions/scheduler.py     runs the engine's cycles; its decisions are triggers for the same rules
    decisions/committer.py     writes the rows of all changes in one transaction
    workloads/requests.py      after the commit: what is due for each changed workload (`plan.py`)
    workloads/sender.py        sends it, here the PATCH that starts the Job

`make bench ARGS=trace` counts its calls; `python -m tests.benchmarks.bench_trace` lists them.

Nothing is imported here: the process that estimates start times needs the policy settings, but not the controller.
"""
