// Page "Workloads": all that the user may see, filtered and sorted by the server. Only the visible part of the list is requested.
import { get } from "../lib/api.js";
import { Age, Card, Empty, Failure, Loading, PageHead, Segments, stateWord, Table, VirtualTable } from "../lib/components.js";
import { count, plural } from "../lib/format.js";
import { navigate, useAddress, useParameter } from "../lib/router.js";
import { useSession } from "../lib/session.js";
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { Actions, MOST_CHANGED, useActions } from "./act.js";
import { COLUMNS } from "./workloads.js";

const ADDRESS = "/session/workloads";
const PAGE = 100;
const EVERY_MS = 10000;
const TYPED_MS = 250;

const STATES = {
  "": { text: "All states", states: [] },
  waiting: { text: "Waiting", states: ["pending"] },
  running: { text: "Running", states: ["admitted", "evicting"] },
  failed: { text: "Failed", states: ["Failed"] },
  succeeded: { text: "Succeeded", states: ["Succeeded"] },
  ended: { text: "Ended", states: ["Succeeded", "Failed", "Deleted", "Evicted", "Dequeued"] },
};
const TIMES = { "1h": "Last hour", "1d": "Last day", "7d": "Last week", "30d": "Last month", all: "All times" };
const ORDERS = { state: "Running first", newest: "Newest first", oldest: "Oldest first", priority: "Highest priority first", name: "By name" };
const FIELDS = { reason: "Reason", user: "User", clusterqueue: "ClusterQueue", namespace: "Namespace", queue: "LocalQueue", kind: "Kind", cluster: "Cluster" };
const GROUPS = { state: "State", ...FIELDS };
const DEFAULT_COLUMNS = ["name", "queue", "user", "state", "why", "requests", "time"];
const EXTRA_COLUMNS = ["namespace", "clusterqueue", "kind", "cluster", "priority"];

// A name of `options`; `fallback` if the address has another one.
const known = (options, name, fallback = "") => (name && Object.hasOwn(options, name) ? name : fallback);

// The filters in the address, as parameters of the search.
function useFilters() {
  useAddress();
  const params = new URLSearchParams(location.search);
  const found = [];
  for (const name of Object.keys(FIELDS)) if (params.get(name)) found.push([name, params.get(name) === "-" ? "" : params.get(name)]);
  for (const state of STATES[known(STATES, params.get("state"))].states) found.push(["state", state]);
  const from = params.get("from") || "1d";
  if (from !== "all") found.push(["from", from]);
  if (params.get("evicted") === "again") found.push(["evicted", "again"]);
  if (params.get("find")) found.push(["find", params.get("find").trim()]);
  return found;
}

const withQuery = (pairs) => `${ADDRESS}?${new URLSearchParams(pairs)}`;

export function AllWorkloads() {
  const filters = useFilters();
  const [group, setGroup] = useParameter("group");
  const [order, setOrder] = useParameter("order", "state");
  const [at, setAt] = useState(0);  // resourceVersion of the last change by this page
  const by = known(GROUPS, group);
  const sorted = known(ORDERS, order, "state");
  return html`<${PageHead} title="Workloads">All that you may see${filters.some(([name]) => name === "from") && ", without those that ended before the chosen time"}<//>
    <${Filters} filters=${filters} />
    ${by ? html`<${Groups} filters=${filters} by=${by} actions=${html`<${View} group=${by} setGroup=${setGroup} />`} />`
      : html`<${Found} filters=${filters} order=${sorted} at=${at} onDone=${(version) => setAt((old) => Math.max(old, version))} actions=${html`<${View} group=${by} setGroup=${setGroup} order=${sorted} setOrder=${setOrder} />`} />`}`;
}

function View({ group, setGroup, order, setOrder }) {
  return html`${setOrder && html`<select aria-label="Order" value=${order} onChange=${(event) => setOrder(event.currentTarget.value)}>${Object.entries(ORDERS).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select>`}
    <select aria-label="Group by" value=${group} onChange=${(event) => setGroup(event.currentTarget.value)}><option value="">No groups</option>${Object.entries(GROUPS).map(([name, text]) => html`<option key=${name} value=${name}>By ${text}</option>`)}</select>
    ${setOrder && html`<${Columns} />`}`;
}

function useColumns() {
  const [text, setText] = useParameter("columns");
  const chosen = text ? text.split(",").filter((name) => Object.hasOwn(COLUMNS, name)) : DEFAULT_COLUMNS;
  const toggle = (name) => {
    const all = [...DEFAULT_COLUMNS, ...EXTRA_COLUMNS], next = all.filter((each) => (each === name) !== chosen.includes(each));
    setText(next.join() === DEFAULT_COLUMNS.join() ? "" : next.join());
  };
  return { chosen, toggle };
}

function Columns() {
  const { chosen, toggle } = useColumns();
  return html`<details class="menu"><summary class="button">Columns</summary><div class="menu-items">${[...DEFAULT_COLUMNS.slice(1), ...EXTRA_COLUMNS].map((name) => html`<label key=${name}>
    <input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} /> ${COLUMNS[name].name}</label>`)}</div></details>`;
}

function Filters({ filters }) {
  const { rights } = useSession();
  const [state, setState] = useParameter("state");
  const [from, setFrom] = useParameter("from", "1d");
  const [find, setFind] = useParameter("find");
  const [evicted, setEvicted] = useParameter("evicted");
  const [typed, setTyped] = useState(find);
  useEffect(() => setTyped(find), [find]);
  useEffect(() => {
    const timer = typed !== find && setTimeout(() => setFind(typed), TYPED_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  const params = new URLSearchParams(location.search);
  const names = Object.keys(FIELDS).filter((name) => name !== (rights.clusterQueues ? "queue" : "clusterqueue") || params.get(name));
  const set = names.filter((name) => params.get(name)).length;
  return html`<div class="filters" role="search" aria-label="Filters">
    <input type="search" aria-label="Name, user or uid" placeholder="Name, user or uid" value=${typed} onInput=${(event) => setTyped(event.currentTarget.value)} />
    <${Segments} label="State" value=${known(STATES, state)} onChange=${setState} options=${Object.entries(STATES).map(([value, { text }]) => ({ value, text }))} />
    <select aria-label="Time" value=${from} onChange=${(event) => setFrom(event.currentTarget.value)}>${[...Object.entries(TIMES), ...(Object.hasOwn(TIMES, from) ? [] : [[from, `Since ${from}`]])].map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select>
    <label title="At least three times in the last hour"><input type="checkbox" checked=${evicted === "again"} onChange=${(event) => setEvicted(event.currentTarget.checked ? "again" : "")} /> Evicted again and again</label>
    <details class="more-filters" open=${set > 0}><summary>${set ? `More filters (${set})` : "More filters"}</summary>
      <div class="filters">${names.map((name) => html`<${Choice} key=${name} name=${name} filters=${filters} />`)}</div></details>
    ${filters.length > (filters.some(([name]) => name === "from") ? 1 : 0) && html`<button type="button" class="text-button" onClick=${() => navigate(location.pathname)}>Clear</button>`}
  </div>`;
}

// A field with the values that there are, which are requested when it receives the focus.
function Choice({ name, filters }) {
  const [value, setValue] = useParameter(name);
  const [values, setValues] = useState([]);
  const others = filters.filter(([other]) => other !== name);
  const load = () => get(withQuery([...others, ["by", name]])).then((found) => setValues(found.items), () => {});  // without them, a value can be typed
  return html`<label>${FIELDS[name]}<input type="search" list=${`values-${name}`} placeholder="any" value=${value} onFocus=${load} onChange=${(event) => setValue(event.currentTarget.value.trim())} />
    <datalist id=${`values-${name}`}>${values.slice(0, 200).map((each) => html`<option key=${each.value} value=${each.value || "-"}>${plural(Object.values(each.counts).reduce((a, b) => a + b, 0), "workload")}</option>`)}</datalist></label>`;
}

// Pages of the list that are visible, requested again every few seconds: {total, rowAt, onRange, error, again}.
function usePages(pairs, at) {
  const key = JSON.stringify(pairs);
  const [state, setState] = useState({ key, pages: new Map(), total: null, error: null });
  const range = useRef([0, 1]);
  const latest = useRef(key);
  latest.current = key;
  const numbers = () => {
    const [first, last] = range.current, found = [];
    for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(first, last - 1) / PAGE); page += 1) found.push(page);
    return found;
  };
  const load = async (wanted, fresh) => {
    if (!wanted.length || document.hidden) return;
    try {
      const answers = await Promise.all(wanted.map((page) => get(withQuery([...pairs, ["offset", page * PAGE], ["limit", PAGE], ...(at ? [["resourceVersion", at]] : [])]))));
      if (latest.current !== key) return;
      setState((old) => {
        const pages = fresh || old.key !== key ? new Map() : new Map(old.pages);
        answers.forEach((answer, index) => pages.set(wanted[index], answer.items));
        return { key, pages, total: answers[0].metadata.total, error: null };
      });
    } catch (error) {
      if (latest.current === key) setState((old) => ({ ...old, pages: old.key === key ? old.pages : new Map(), total: old.key === key ? old.total : null, key, error }));
    }
  };
  useEffect(() => {
    if (state.key !== key) range.current = [0, 1];
    load(numbers(), true);
    const again = () => load(numbers(), true);
    const timer = setInterval(again, EVERY_MS);
    document.addEventListener("visibilitychange", again);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", again);
    };
  }, [key, at]);
  const onRange = (first, last) => {
    range.current = [first, last];
    if (state.key === key && state.total !== null) load(numbers().filter((page) => !state.pages.has(page)), false);
  };
  return { ...state, isOf: state.key === key, rowAt: (index) => state.pages.get(Math.floor(index / PAGE))?.[index % PAGE], onRange, again: () => load(numbers(), true) };
}

function Found({ filters, order, at, onDone, actions }) {
  const found = usePages([...filters, ["order", order]], at);
  const { chosen } = useColumns();
  const [selected, setSelected] = useState(new Map());
  const { any } = useActions([]);
  const key = JSON.stringify(filters);
  useEffect(() => setSelected(new Map()), [key]);
  const workloads = [...selected.values()];
  const select = (workload, on) => setSelected((old) => {
    const next = new Map(old);
    if (on) next.set(workload.metadata.uid, workload);
    else next.delete(workload.metadata.uid);
    return next;
  });
  const selectAll = async () => {
    const page = await get(withQuery([...filters, ["order", order], ["limit", MOST_CHANGED]]));
    setSelected(new Map(page.items.filter(({ status }) => status.state !== "finished").map((workload) => [workload.metadata.uid, workload])));
  };
  if (found.error && found.total === null) return html`<${Card} title="List" actions=${actions}><${Failure} error=${found.error} retry=${found.again} /><//>`;
  const choose = { name: "Selected", className: "check", cell: (workload) => workload.status.state !== "finished" && html`<input type="checkbox" aria-label=${`Select ${workload.spec.object.name}`} checked=${selected.has(workload.metadata.uid)} onChange=${(event) => select(workload, event.currentTarget.checked)} />` };
  return html`<${Card} title="List" note=${found.total === null ? "" : plural(found.total, "workload")} actions=${actions}>
    ${any && found.total > 0 && html`<div class="chosen" role="group" aria-label="Selected workloads">
      ${workloads.length ? html`<span>${count(workloads.length)} selected</span><button type="button" class="text-button" onClick=${() => setSelected(new Map())}>None</button>` : ""}
      <button type="button" class="text-button" onClick=${selectAll}>${found.total > MOST_CHANGED ? `Select the first ${MOST_CHANGED}` : "Select all"}</button>
      <${Actions} workloads=${workloads} onDone=${(version) => { setSelected(new Map()); onDone(version); }} /></div>`}
    ${found.total === null ? html`<${Loading} lines=${8} />`
      : found.total === 0 ? html`<${Empty} title="Nothing found">No workload matches. <button type="button" class="text-button" onClick=${() => navigate(location.pathname)}>Clear the filters</button><//>`
      : html`<${VirtualTable} key=${key + order} label="Workloads" total=${found.total} rowAt=${found.rowAt} onRange=${found.onRange} keyOf=${(workload) => workload.metadata.uid} tall
          narrowHeight=${116} highest=${Math.max(420, innerHeight - 300)} columns=${[...(any ? [choose] : []), ...chosen.map((name) => COLUMNS[name])]} />`}
  <//>`;
}

const SHOWN_STATES = ["pending", "admitted", "evicting", "Failed", "Succeeded"];

// Numbers of workloads by the values of a field; each value leads to its list.
function Groups({ filters, by, actions }) {
  const [state, setState] = useState({ key: "", items: null, error: null });
  const key = JSON.stringify([filters, by]);
  useEffect(() => {
    let current = true;
    const load = () => document.hidden || get(withQuery([...filters, ["by", by]])).then(
      (found) => current && setState({ key, items: found.items, error: null }), (error) => current && setState((old) => ({ ...old, error })));
    load();
    const timer = setInterval(load, EVERY_MS);
    return () => {
      current = false;
      clearInterval(timer);
    };
  }, [key]);
  const items = state.key === key ? state.items : null;
  if (state.error && !items) return html`<${Card} title="Groups" actions=${actions}><${Failure} error=${state.error} /><//>`;
  if (!items) return html`<${Card} title="Groups" actions=${actions}><${Loading} lines=${6} /><//>`;
  const numberOf = (group, name) => (group.counts[name] ? html`<span class=${name === "Failed" ? "failed" : ""}>${count(group.counts[name])}</span>` : html`<span class="soft">–</span>`);
  const totalOf = (group) => Object.values(group.counts).reduce((a, b) => a + b, 0);
  return html`<${Card} title="Groups" note=${plural(items.length, "group")} actions=${actions}>
    ${items.length ? html`<${Table} label=${`Workloads by ${GROUPS[by]}`} rows=${items.slice(0, 500)} keyOf=${(group) => group.value} columns=${[
      { name: GROUPS[by], cell: (group) => html`<a href=${groupLink(by, group.value)}><bdi class="free">${by === "state" ? stateWord(group.value) : group.value || "none"}</bdi></a>` },
      ...(by === "state" ? [] : SHOWN_STATES.filter((name) => items.some((group) => group.counts[name])).map((name) => ({ name: stateWord(name), className: `number ${name === "Succeeded" || name === "evicting" ? "opt" : ""}`, cell: (group) => numberOf(group, name) }))),
      { name: "All", className: "number", cell: (group) => count(totalOf(group)) },
      { name: "Longest wait", className: "number opt", cell: (group) => html`<${Age} since=${group.oldest} />` },
    ]} />` : html`<${Empty} title="Nothing found">No workload matches these filters.<//>`}
  <//>`;
}

// Address of the list of one group.
function groupLink(by, value) {
  const params = new URLSearchParams(location.search);
  params.delete("group");
  if (by === "state") params.set("state", Object.keys(STATES).find((name) => STATES[name].states.includes(value)) || "ended");
  else params.set(by, value || "-");
  return `${location.pathname}?${params}`;
}
