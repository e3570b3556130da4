// Pending workloads of a queue, in order. The list may be very long: only the visible part is requested.
import { get } from "../lib/api.js";
import { Age, Badge, Empty, Failure, Free, HOPELESS, Loading, VirtualTable } from "../lib/components.js";
import { amount, count, duration, fullTime, seconds } from "../lib/format.js";
import { useNow } from "../lib/live.js";
import { workloadLink } from "../lib/router.js";
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { QueueName, Requests, shortly } from "./workloads.js";

const PAGE = 200;
const LEAST_MS = 1000;
// Most requests for a list whose length still differs from the number in the queue's status, in growing intervals.
const MOST_LATE = 5;

// `address`: URL of the subresource pendingworkloads. `total`: number of pending workloads, as last known. `changes`: a number
// that grows when the queue has changed; the visible part is then requested again.
export function Pending({ address, total, changes, local }) {
  const [state, setState] = useState({ pages: new Map(), total, error: null });
  const range = useRef([0, 1]);
  const asked = useRef(0);
  const late = useRef(0);
  const pagesInSight = () => {
    const [first, last] = range.current;
    const pages = [];
    for (let page = Math.floor(first / PAGE); page <= Math.floor(Math.max(first, last - 1) / PAGE); page += 1) pages.push(page);
    return pages;
  };
  const load = async (numbers, fresh) => {
    if (!numbers.length || document.hidden) return;
    try {
      const answers = await Promise.all(numbers.map((page) => get(address, { limit: PAGE, offset: page * PAGE })));
      setState((old) => {
        const pages = fresh ? new Map() : new Map(old.pages);
        let known = old.total;
        answers.forEach((answer, index) => {
          pages.set(numbers[index], answer.items);
          known = numbers[index] * PAGE + answer.items.length + (answer.metadata.remainingItemCount || 0);
        });
        return { pages, total: answers[0]?.items.length || numbers[0] === 0 ? known : old.total, error: null };
      });
    } catch (error) {
      setState((old) => ({ ...old, error }));
    }
  };
  useEffect(() => {
    const wait = Math.max(0, LEAST_MS - (performance.now() - asked.current));
    const timer = setTimeout(() => {
      asked.current = performance.now();
      load(pagesInSight(), true);
    }, asked.current ? wait : 0);
    return () => clearTimeout(timer);
  }, [address, changes]);
  useEffect(() => {
    const shown = () => document.hidden || load(pagesInSight(), true);
    document.addEventListener("visibilitychange", shown);
    return () => document.removeEventListener("visibilitychange", shown);
  }, [address]);
  // The list is computed by an engine that may be seconds behind the numbers in the queue's status: request it again.
  useEffect(() => {
    late.current = 0;
  }, [address, changes, total]);
  useEffect(() => {
    const isEmpty = total && !state.total;
    if (state.total === total || !state.pages.size || (!isEmpty && late.current >= MOST_LATE)) return undefined;
    const timer = setTimeout(() => {
      late.current += 1;
      load(pagesInSight(), true);
    }, 2 * LEAST_MS * (isEmpty ? 1 : 2 ** late.current));
    return () => clearTimeout(timer);
  }, [total, state]);
  const inSight = (first, last) => {
    range.current = [first, last];
    load(pagesInSight().filter((page) => !state.pages.has(page)), false);
  };
  if (state.error && !state.pages.size) return html`<${Failure} error=${state.error} retry=${() => load(pagesInSight(), true)} />`;
  if (!state.pages.size) return html`<${Loading} lines=${6} />`;
  if (!state.total) return html`<${Empty} title="Nothing waits">Workloads that do not fit into the free quota line up here, each with its place and the reason.<//>`;
  const position = local ? "positionInLocalQueue" : "positionInClusterQueue";
  const isEstimated = [...state.pages.values()].some((items) => items.some((item) => item.estimatedStart));
  const columns = [
    { name: "#", className: "number place", cell: (item) => item[position] ? count(item[position]) : "–" },
    { name: "Name", className: "main", cell: (item) => html`<a class="name" title=${item.metadata.ownerReferences[0].name} href=${workloadLink(item.metadata.namespace, item.metadata.ownerReferences[0].name)}><bdi>${item.metadata.ownerReferences[0].name}</bdi></a>` },
    ...(local ? [] : [{ name: "Queue", className: "queue opt", cell: (item) => html`<${QueueName} namespace=${item.metadata.namespace} name=${item.localQueueName} />` }]),
    { name: "User", className: "person opt", cell: (item) => html`<span title=${item.user}><${Free} text=${item.user || "–"} longest=${Infinity} /></span>` },
    { name: "Requests", className: "wide", cell: (item) => html`<${Requests} requests=${Object.fromEntries(Object.entries(item.requests || {}).map(([resource, quantity]) => [resource, amount(quantity)]))} />` },
    { name: "Priority", className: "number priority opt", cell: (item) => item.priority },
    { name: "Why it waits", className: "widest", cell: (item) => html`<span class="reason" title=${item.message}><${Badge} tone=${HOPELESS.has(item.reason) ? "bad" : "wait"}>${item.reason || "Evaluating"}<//> <span class="soft"><${Free} text=${item.needs ? `needs ${item.needs}` : shortly(item.message)} longest=${200} /></span></span>` },
    ...(isEstimated ? [{ name: "Starts in", className: "number starts opt", cell: (item) => html`<${StartsIn} estimate=${item.estimatedStart} />` }] : []),
    { name: "Waited", className: "number age", cell: (item) => html`<${Age} since=${item.queuedAt} />` },
  ];
  return html`<${VirtualTable} label="Pending workloads, in order" columns=${columns} total=${state.total} tall keyOf=${(item) => item.metadata.uid}
    rowAt=${(index) => state.pages.get(Math.floor(index / PAGE))?.[index % PAGE]} onRange=${inSight} />`;
}

// Estimated time until a workload starts: the median, and the bound that nine of ten keep.
function StartsIn({ estimate }) {
  const now = useNow() / 1000;
  if (!estimate) return html`<span class="soft">–</span>`;
  const [half, most] = [estimate.p50, estimate.p90].map((at) => seconds(at) - now);
  const title = `Half of such workloads start before ${fullTime(estimate.p50)}, nine of ten before ${fullTime(estimate.p90)}.`;
  return html`<time datetime=${estimate.p50} title=${title}>${half > 0 ? `about ${duration(half)}` : most > 0 ? `at most ${duration(most)}` : "late"}</time>`;
}
