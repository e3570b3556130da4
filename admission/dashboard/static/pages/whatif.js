// Page "What if": a past period replayed with another nominal quota, beside what happened.
import { ask, path } from "../lib/api.js";
import { ShareBar } from "../lib/charts.js";
import { Card, Empty, Failure, Loading, PageHead, Segments, Table } from "../lib/components.js";
import { amount, count, dateTime, duration, percent, plural, QUANTITY, resourceName } from "../lib/format.js";
import { useCollection } from "../lib/live.js";
import { useParameter } from "../lib/router.js";
import { useSession } from "../lib/session.js";
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { endOf, RELATIVE } from "./usage.js";

const PAST = [["1d", "24 hours"], ["7d", "7 days"], ["30d", "30 days"]];
// Field of the answer, and its title. The replay without changes shows how far replays can be trusted.
const COURSES = [["happened", "Happened"], ["replayed", "Replayed"], ["changed", "Changed"]];
const MOST = 100;  // queues, and Budgets, in a table
const NO_RIGHT = "You have no right to create whatifs; the role sluice-admin has it.";
const FAULTS = {
  0: "Sluice cannot be reached, or the connection was cut before the answer was complete; try again.",
  403: NO_RIGHT,
  404: "This server replays nothing; open the dashboard of a sluice serve.",
  429: "Another what-if question is being answered; try again when it is done.",
};

const Fault = ({ text }) => html`<p class="notice" role="alert">${text}</p>`;

export function WhatIf() {
  const { rights } = useSession();
  const queues = useCollection(rights.whatIfs ? path("clusterqueues") : null);
  return html`<${PageHead} title="What if">A past period replayed with another quota, beside what happened; nothing is changed<//>
    ${!rights.whatIfs ? html`<${Fault} text=${NO_RIGHT} />` : queues.error ? html`<${Failure} error=${queues.error} />` : !queues.ready ? html`<${Loading} />`
      : html`<${Question} queues=${queues.items.filter((queue) => placesOf(queue).length).sort((a, b) => a.metadata.name.localeCompare(b.metadata.name))} />`}`;
}

// Quotas of a ClusterQueue: [{flavor, resource}]; `resource` is that of the manifest.
const placesOf = (queue) => (queue.spec.resourceGroups || []).flatMap((group) => group.flavors.flatMap((flavor) => flavor.resources.map((resource) => ({ flavor: flavor.name, resource }))));

function Question({ queues }) {
  const [from, setFrom] = useParameter("from", "7d");
  const [to, setTo] = useParameter("to");
  const [name, setName] = useParameter("queue");
  const [place, setPlace] = useState(0);
  const [typed, setTyped] = useState(null);
  const [share, setShare] = useState(null);  // of the replays that is done; null: no question is being answered
  const [found, setFound] = useState({});
  const abort = useRef(null);
  useEffect(() => () => abort.current?.abort(), []);
  const queue = queues.find((each) => each.metadata.name === name) || queues[0];
  if (!queue) return html`<${Empty} title="No quota">There is no ClusterQueue with quota that could be another.<//>`;
  const places = placesOf(queue), { flavor, resource } = places[place] || places[0], quota = typed ?? String(resource.nominalQuota), busy = share !== null;
  const replay = async (event) => {
    event.preventDefault();
    if (!QUANTITY.test(quota.trim())) return setFound({ fault: `New quota: "${quota}" is not an amount; give one such as 16, 500m or 64Gi.` });
    const { spec } = structuredClone(queue);
    placesOf({ spec }).find((each) => each.flavor === flavor && each.resource.name === resource.name).resource.nominalQuota = quota.trim();
    abort.current = new AbortController();
    setFound({});
    setShare(0);
    try {
      const objects = [{ apiVersion: "sluice.dev/v1", kind: "ClusterQueue", metadata: { name: queue.metadata.name }, spec }];
      const answer = await ask(path("whatifs"), { from, to: endOf(to), objects }, setShare, abort.current.signal);
      setFound({ answer, queue: queue.metadata.name, change: `${quota.trim()} instead of ${resource.nominalQuota} ${resourceName(resource.name)} of flavor ${flavor} in ${queue.metadata.name}` });
    } catch (error) {
      if (error.name !== "AbortError") setFound({ fault: FAULTS[error.status] || `${error.message[0].toUpperCase()}${error.message.slice(1)}.`.replace(/([.?!])\.$/, "$1") });
    }
    return setShare(null);
  };
  const choose = (set) => (event) => {
    set(event.currentTarget.value);
    setTyped(null);
  };
  // The keys make them two buttons: a single one would be of the type submit before the click on Cancel has ended.
  return html`<form class="filters" aria-label="Question" onSubmit=${replay}>
      <${Segments} label="Period" value=${to ? "" : from} onChange=${(value) => { setFrom(value); setTo(""); }} options=${PAST.map(([value, text]) => ({ value, text }))} />
      <span class="dates" title="Whole days, which begin at 0:00 UTC"><label>From <input type="date" value=${RELATIVE.test(from) ? "" : from} onChange=${(event) => setFrom(event.currentTarget.value)} /></label>
      <label>To <input type="date" value=${to} onChange=${(event) => setTo(event.currentTarget.value)} /></label></span>
      <label>ClusterQueue <select value=${queue.metadata.name} onChange=${choose((value) => { setName(value); setPlace(0); })}>${queues.map((each) => html`<option key=${each.metadata.name} value=${each.metadata.name}>${each.metadata.name}</option>`)}</select></label>
      <label>Quota of <select value=${places[place] ? place : 0} onChange=${choose((value) => setPlace(Number(value)))}>${places.map((each, index) => html`<option key=${index} value=${index}>${resourceName(each.resource.name)} in ${each.flavor}</option>`)}</select></label>
      <label>New quota <input type="text" size="7" spellcheck="false" value=${quota} onInput=${(event) => setTyped(event.currentTarget.value)} /></label>
      ${busy ? html`<button key="cancel" type="button" class="button" onClick=${() => abort.current.abort()}>Cancel</button>` : html`<button key="replay" type="submit" class="button primary">Replay</button>`}
    </form>
    ${busy && html`<p><progress aria-label="Replayed" max="1" value=${share}></progress> <span class="soft">${percent(share, 1)} replayed</span></p>`}
    ${found.fault && html`<${Fault} text=${found.fault} />`}
    <div role="status">${found.answer && html`<p style=${{ marginBottom: "12px" }}>${plural(found.answer.happened.all.workloads, "workload")} waited from ${dateTime(found.answer.from)} to ${dateTime(found.answer.to)}. <b>Changed</b>: ${found.change}.</p>`}</div>
    ${found.answer && html`<${Answer} ...${found} />`}`;
}

const WAITS = [["Mean wait", "mean"], ["Half within", "p50"], ["Nine of ten within", "p90"]];
const COUNTS = [["Not started", "waiting"], ["Preemptions", "preemptions"]];

const courseColumns = COURSES.map(([, name], index) => ({ name, className: "number", cell: (row) => row.cells[index] }));

// Durations of the courses, each with a bar in proportion to the longest of them.
function waitCells(secondsOf) {
  const waits = COURSES.map(([field]) => secondsOf(field)), longest = Math.max(...waits.map((wait) => wait ?? 0));
  return waits.map((wait) => (wait === undefined ? "–" : html`${duration(wait)}<${ShareBar} share=${wait / (longest || 1)} />`));
}

function useCells(answer, { flavor, resource }) {
  return COURSES.map(([field]) => {
    const use = answer[field].resources.find((each) => each.flavor === flavor && each.resource === resource);
    return use?.quotaSeconds ? html`${percent(use.usedSeconds, use.quotaSeconds)}<${ShareBar} share=${Math.min(1, use.usedSeconds / use.quotaSeconds)} />` : "–";
  });
}

// What a Budget has spent of the hours or the money that it gives in its period.
function budgetCells(answer, key) {
  return COURSES.map(([field]) => {
    const use = answer[field].budgets.find((each) => keyOf(each) === key);
    return use ? `${use.spent} of ${use.hours}` : "–";
  });
}

const keyOf = ({ budget, unit, flavors }) => JSON.stringify([budget, unit, flavors]);

function Answer({ answer, queue }) {
  const budgets = new Map(COURSES.flatMap(([field]) => answer[field].budgets.map((use) => [keyOf(use), use])));
  const all = [
    ...WAITS.map(([name, wait]) => ({ name, cells: waitCells((field) => answer[field].all.waitSeconds[wait]) })),
    ...COUNTS.map(([name, number]) => ({ name, cells: COURSES.map(([field]) => count(answer[field].all[number])) })),
    ...answer.changed.resources.map((use) => ({ name: html`${resourceName(use.resource)} used <span class="small soft"><bdi>${use.flavor}</bdi></span>`, cells: useCells(answer, use) })),
    ...[...budgets].slice(0, MOST).map(([key, { budget, unit, flavors }]) => ({ name: html`Spent of Budget <bdi>${budget}</bdi> <span class="small soft">${unit}${flavors ? ` in ${flavors.join(", ")}` : ""}</span>`, cells: budgetCells(answer, key) })),
  ];
  const queues = new Map();
  for (const [field] of COURSES) for (const each of answer[field].clusterQueues) queues.set(each.clusterQueue, { name: each.clusterQueue, ...queues.get(each.clusterQueue), [field]: each });
  const size = (row) => COURSES.reduce((most, [field]) => Math.max(most, row[field]?.workloads || 0), 0);
  const rows = [...queues.values()].sort((a, b) => (b.name === queue) - (a.name === queue) || size(b) - size(a) || a.name.localeCompare(b.name))
    .slice(0, MOST).map((row) => ({ ...row, cells: waitCells((field) => row[field]?.waitSeconds.p90) }));
  const { started, agree, estimated, ordered, misdated } = answer.agreement;
  return html`<${Card} title="All queues" note="Compare the last two: both leave out the same facts">
      <${Table} label="Waits and use of quota" rows=${all} columns=${[{ name: "Measure", cell: (row) => row.name }, ...courseColumns]} />
      <p class="soft small table-note">${started > 0 && `The replay without changes starts ${percent(agree, started)} of ${plural(started, "workload")} when they did, to a minute or 10 % of their wait.`}
        ${estimated > 0 && ` Run times of ${plural(estimated, "workload")} that had not ended are estimated.`}
        ${ordered > 0 && ` Orders of admins about ${plural(ordered, "workload")} (hold, move, prioritise) are not replayed.`}
        ${misdated > 0 && ` Sluice saw ${plural(misdated, "workload")} more than a minute after the creation, or by another clock.`}</p>
    <//>
    <${Card} title="By ClusterQueue" note="Nine of ten started within">
      <${Table} label="Waits by ClusterQueue" rows=${rows} keyOf=${(row) => row.name} columns=${[{ name: "ClusterQueue", cell: (row) => html`<bdi class="free">${row.name || "none"}</bdi>` },
        { name: "Workloads", className: "number opt", cell: (row) => count(size(row)) }, ...courseColumns]} />
      ${queues.size > MOST && html`<p class="soft small table-note">The ${MOST} largest of ${count(queues.size)} are shown; sluice whatif -o csv has all.</p>`}
    <//>`;
}
