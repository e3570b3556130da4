// Page "Audit": writes through the API, the newest first, and the consistency audit.
import { get } from "../lib/api.js";
import { Badge, Card, Empty, Failure, Free, Loading, PageHead, Time } from "../lib/components.js";
import { link, queueLink, useParameter, workloadLink } from "../lib/router.js";
import { useSession } from "../lib/session.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { Difference } from "./history.js";

const PAGE = 50;
const KINDS = ["ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass", "AdmissionCheck", "Workload", "Outage"];
const escaped = (text) => text.replace(/[\\,=]/g, "\\$&");

export function Audit() {
  const { rights } = useSession();
  const [kind, setKind] = useParameter("kind");
  const [user, setUser] = useParameter("user");
  const [name, setName] = useParameter("name");
  const [state, setState] = useState({ items: [], token: "", ready: false, error: null });
  const selector = [kind && `kind=${kind}`, user && `user=${escaped(user)}`, name && `name=${escaped(name)}`].filter(Boolean).join(",");
  const load = async (token, signal) => {
    try {
      const page = await get("/apis/sluice.dev/v1/auditrecords", { limit: PAGE, fieldSelector: selector, continue: token }, signal);
      setState((old) => ({ items: token ? [...old.items, ...page.items] : page.items, token: page.metadata.continue, ready: true, error: null }));
    } catch (error) {
      if (error.name !== "AbortError") setState((old) => ({ ...old, ready: true, error }));
    }
  };
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => load("", abort.signal), 250);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [selector]);
  return html`<${PageHead} title="Audit">Every change through the API: who, when, and why<//>
    <${Card} title="Changes" actions=${html`
      <select aria-label="Kind" value=${kind} onChange=${(event) => setKind(event.currentTarget.value)}><option value="">All kinds</option>${KINDS.map((each) => html`<option key=${each}>${each}</option>`)}</select>
      <input type="search" aria-label="User" placeholder="User" value=${user} onInput=${(event) => setUser(event.currentTarget.value)} />
      <input type="search" aria-label="Name" placeholder="Name" value=${name} onInput=${(event) => setName(event.currentTarget.value)} />`}>
      ${state.error ? html`<${Failure} error=${state.error} retry=${() => load("")} />` : !state.ready ? html`<${Loading} lines=${6} />`
        : !state.items.length ? html`<${Empty} title="No changes">${selector ? "No change matches these filters: they compare whole names." : "Each write through the API is kept here, with the object before and after."}<//>`
        : html`<ol class="timeline">${state.items.map((record) => html`<${Entry} key=${record.metadata.name} record=${record} />`)}</ol>
          ${state.token && html`<button type="button" class="button" onClick=${() => load(state.token)}>Earlier changes</button>`}`}
    <//>
    ${rights.consistency && html`<${Consistency} />`}`;
}

// Consistency audit: compares database, cluster and the leader's memory. It reads everything, so it runs on request only.
function Consistency() {
  const [state, setState] = useState({ busy: false, items: null, error: null });
  const look = async () => {
    setState({ busy: true, items: null, error: null });
    try {
      setState({ busy: false, items: (await get("/apis/sluice.dev/v1/audits")).items, error: null });
    } catch (error) {
      setState({ busy: false, items: null, error });
    }
  };
  const { busy, items, error } = state;
  return html`<${Card} title="Consistency" note="Whether database, cluster and memory agree" actions=${html`<button type="button" class="button" disabled=${busy} onClick=${look}>${busy ? "Comparing …" : "Compare now"}</button>`}>
    ${error ? html`<${Failure} error=${error} />` : !items ? html`<p class="soft">Sluice compares them by itself every few minutes and repairs what differs. This looks now and repairs nothing.</p>`
      : items.length ? html`<ul class="bullets">${items.map((item, index) => html`<li key=${index}>${Object.entries(item).map(([name, value]) => html`<span key=${name}><span class="soft">${name}</span> <${Free} text=${value} /> </span>`)}</li>`)}</ul>`
      : html`<${Empty} title="No differences">Database, cluster and memory say the same.<//>`}
  <//>`;
}

function Entry({ record }) {
  const { object } = record;
  const key = object.namespace ? `${object.namespace}/${object.name}` : object.name;
  const address = object.kind === "ClusterQueue" ? queueLink(object.name) : object.kind === "LocalQueue" ? link("namespaces", object.namespace, "queues", object.name) : object.kind === "Workload" ? workloadLink(object.namespace, object.name) : null;
  return html`<li class=${record.verb === "delete" ? "warn" : "calm"}>
    <p><b><${Free} text=${record.user} longest=${80} /></b> <${Badge} tone=${record.verb === "delete" ? "bad" : "calm"}>${record.verb}<//> ${object.kind} ${address ? html`<a href=${address}><bdi>${key}</bdi></a>` : html`<bdi>${key}</bdi>`}${" "}<span class="soft"><${Time} at=${record.metadata.creationTimestamp} />${record.source && html` from ${record.source}`}</span></p>
    ${record.reason && html`<p class="quote"><${Free} text=${record.reason} /></p>`}
    <${Difference} differences=${record.before && record.after ? difference(strip(record.before), strip(record.after)) : []} object=${record.after} />
  </li>`;
}

function strip(object) {
  const { metadata = {}, status, ...rest } = object;
  return { ...rest, metadata: { labels: metadata.labels, annotations: metadata.annotations } };
}

// Differences between two documents: [{path, before, after}].
function difference(before, after, place = "", found = []) {
  if (JSON.stringify(before) === JSON.stringify(after)) return found;
  const nested = before && after && typeof before === "object" && typeof after === "object" && Array.isArray(before) === Array.isArray(after);
  if (!nested || (Array.isArray(before) && before.length !== after.length)) {
    found.push({ path: place, before, after });
    return found;
  }
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    difference(before[key], after[key], Array.isArray(before) ? `${place}[${key}]` : place ? `${place}.${key}` : key, found);
  }
  return found;
}
