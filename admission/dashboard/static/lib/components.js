// Components shared by all pages.
import { ApiError } from "./api.js";
import { dateTime, duration, fullTime, seconds } from "./format.js";
import { useNow } from "./live.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./ui.js";

export function useTitle(title) {
  useEffect(() => {
    document.title = title ? `${title} · Sluice` : "Sluice";
  }, [title]);
}

// Heading of a page. It receives the focus when the page is opened, so that screen readers and Tab begin there.
export function PageHead({ title, crumbs = [], badge, actions, children }) {
  useTitle(title);
  const heading = useRef(null);
  useEffect(() => heading.current?.focus({ preventScroll: true }), [title]);
  return html`<header class="page-head">
    ${crumbs.length > 0 && html`<nav aria-label="Breadcrumb" class="crumbs">${crumbs.map(
      (crumb) => html`<a href=${crumb.href} key=${crumb.href}>${crumb.text}</a><span aria-hidden="true">/</span>`)}</nav>`}
    <div class="page-title"><h1 tabindex="-1" ref=${heading}>${title}</h1>${badge}<span class="grow"></span>${actions}</div>
    ${children && html`<div class="page-sub">${children}</div>`}
  </header>`;
}

export function Card({ title, note, actions, className = "", children, id }) {
  return html`<section class=${`card ${className}`} aria-label=${title} id=${id}>
    ${title && html`<div class="card-head"><h2>${title}</h2>${note && html`<p>${note}</p>`}<span class="grow"></span>${actions}</div>`}
    ${children}
  </section>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p><div class="empty-text">${children}</div></div>`;
}

const REPEATED = "The page tries again by itself.";
const ADVICE = {
  403: "Ask an administrator for a role with this right; docs/access.md of Sluice lists the roles.",
  404: "It may have been deleted, or its name is spelled differently. Search finds what there is.",
  409: "Cancel, and open this dialog again: it then starts from the present version.",
  429: "Wait a moment, then try again.",
  503: "It usually passes; the page tries again when it is opened anew.",
};

export const PASSING = [0, 502, 503, 504];
const RETRY_MS = 5000;

// `retry` sends the request again. It is also called every few seconds if the failure is one that passes, such as a restart.
export function Failure({ error, retry }) {
  const title = { 0: "No connection", 403: "You may not see this", 404: "Not found" }[error.status] || "That did not work";
  const again = useRef(retry);
  again.current = retry;
  const retries = Boolean(retry) && PASSING.includes(error.status);
  useEffect(() => {
    if (!retries) return undefined;
    const timer = setInterval(() => document.hidden || again.current(), RETRY_MS);
    return () => clearInterval(timer);
  }, [retries]);
  const advice = retries ? REPEATED : ADVICE[error.status];
  return html`<div class="failure" role="alert"><p class="empty-title">${title}</p>
    <p>${error instanceof ApiError || error.message ? error.message : String(error)}</p>
    ${advice && html`<p class="soft">${advice}</p>`}
    ${retry && html`<button type="button" class="button" onClick=${retry}>Try again</button>`}</div>`;
}

export function Loading({ lines = 3 }) {
  return html`<div class="loading" role="status"><span class="visually-hidden">Loading</span>
    ${Array.from({ length: lines }, (_, number) => html`<i key=${number}></i>`)}</div>`;
}

const TONES = {
  admitted: "good", running: "good", Ready: "good", Succeeded: "good", Complete: "good", ok: "good",
  pending: "wait", wait: "wait", evicting: "warn", stopped: "warn", draining: "warn", finished: "calm", Failed: "bad", bad: "bad", warn: "warn", calm: "calm",
};

export function Badge({ tone, children }) {
  return html`<span class=${`badge ${TONES[tone] || "calm"}`}>${children}</span>`;
}

// Reasons of pending workloads that need an action of a user or admin.
export const HOPELESS = new Set(["ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured"]);
// Outcomes whose word for people is another one.
const OUTCOMES = { Deleted: "Cancelled" };

export const conditionOf = (workload, type) => workload.status.conditions?.find((condition) => condition.type === type);

// State of a workload in a word or two, with the tone (colour) of its badge; of a finished one its outcome.
export function stateOf(workload) {
  const { state } = workload.status;
  if (state === "finished") {
    const outcome = conditionOf(workload, "Finished")?.reason || "Finished";
    return { tone: outcome === "Failed" ? "bad" : "finished", text: OUTCOMES[outcome] || outcome };
  }
  if (state === "pending" && (workload.spec.hold || workload.spec.active === false)) return { tone: "warn", text: workload.spec.hold ? "On hold" : "Deactivated" };
  if (state === "pending" && HOPELESS.has(conditionOf(workload, "QuotaReserved")?.reason)) return { tone: "bad", text: "Cannot run" };
  if (state === "admitted") {
    if (conditionOf(workload, "Admitted")?.status === "False") return { tone: "wait", text: "Waits for checks" };
    if (conditionOf(workload, "PodsReady")?.reason === "WaitForStart") return { tone: "bad", text: "Not started" };
    return { tone: "admitted", text: "Admitted" };
  }
  return { tone: state, text: { pending: "Pending", evicting: "Stopping" }[state] || state };
}

// Same for an outcome or state without its workload, as in counts by group.
export const stateWord = (state) => ({ pending: "Waiting", admitted: "Running", evicting: "Stopping" }[state] || OUTCOMES[state] || state);

export function StateBadge({ workload }) {
  const { tone, text } = stateOf(workload);
  return html`<${Badge} tone=${tone}>${text}<//>`;
}

// Time elapsed since a time, updated every second.
export function Age({ since, until }) {
  const now = useNow();
  if (!since) return html`<span class="soft">–</span>`;
  const end = until ? seconds(until) : now / 1000;
  return html`<time datetime=${since} title=${fullTime(since)}>${duration(end - seconds(since))}</time>`;
}

export const Time = ({ at }) => html`<time datetime=${at} title=${fullTime(at)}>${dateTime(at)}</time>`;

const MOST_SEGMENTS = 5;

// Choice of one option: buttons side by side, or a list if there are many.
export function Segments({ label, options, value, onChange }) {
  if (options.length > MOST_SEGMENTS) {
    return html`<select aria-label=${label} value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
      ${options.map((option) => html`<option key=${option.value} value=${option.value}>${option.text}</option>`)}</select>`;
  }
  return html`<div class="segments" role="group" aria-label=${label}>
    ${options.map((option) => html`<button type="button" key=${option.value} aria-pressed=${String(option.value === value)}
      onClick=${() => onChange(option.value)}>${option.text}</button>`)}
  </div>`;
}

// List of labels and values; pairs without a value are left out.
export function Facts({ items }) {
  return html`<dl class="facts">${items.filter(([, value]) => value !== null && value !== undefined && value !== "").map(
    ([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

export function useNarrow(query = "(max-width: 760px)") {
  const [narrow, setNarrow] = useState(matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const change = () => setNarrow(media.matches);
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, [query]);
  return narrow;
}

// Virtual table: only the visible rows exist in the document. `columns`: [{name, cell(row, index), className}]; `rowAt(index)`
// returns undefined while a row is being loaded; `onRange(first, last)` is called with the visible range; `tall`: rows have
// three lines on narrow screens; `narrowHeight`: of a row on phones, in pixels.
export function VirtualTable({ label, columns, total, rowAt, onRange, keyOf, highest = 560, tall = false, narrowHeight = 92 }) {
  const narrow = useNarrow();
  const middling = useNarrow("(max-width: 1360px)");
  const height = narrow ? narrowHeight : tall && middling ? 64 : 44;
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const inSight = Math.ceil(highest / height) + 1;
  const first = Math.max(0, Math.min(Math.floor(top / height) - 6, total - inSight));
  const last = Math.min(total, Math.max(0, first) + inSight + 12);
  useLayoutEffect(() => {
    onRange?.(Math.max(0, first), last);
  }, [first, last]);
  const rows = [];
  for (let index = Math.max(0, first); index < last; index += 1) {
    const row = rowAt(index);
    rows.push(html`<div role="row" class="vrow" aria-rowindex=${index + 2} key=${row ? keyOf(row) : `loading-${index}`} style=${{ top: `${index * height}px`, height: `${height}px` }}>
      ${columns.map((column) => html`<div role="cell" key=${column.name} class=${`cell ${column.className || ""}`} data-label=${column.name}>${
        row ? column.cell(row, index) : html`<i class="ghost"></i>`}</div>`)}
    </div>`);
  }
  const whole = Math.min(highest, Math.max(1, total) * height + (narrow ? 2 : 36));
  return html`<div class="vtable" role="table" tabindex="0" aria-label=${label} aria-rowcount=${total + 1} ref=${box} style=${{ height: `${whole}px` }}
      onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
    <div role="rowgroup" class="vhead"><div role="row" class="vheads" aria-rowindex="1">${columns.map(
      (column) => html`<div role="columnheader" key=${column.name} class=${`cell ${column.className || ""}`}>${column.name}</div>`)}</div></div>
    <div class="vspace" role="rowgroup" style=${{ height: `${total * height}px` }}>${rows}</div>
  </div>`;
}

// Returns [width in pixels, ref]; the ref is to be set on the element that is measured.
export function useWidth(fallback = 720) {
  const ref = useRef(null);
  const [width, setWidth] = useState(fallback);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(200, Math.round(entry.contentRect.width))));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [width, ref];
}

// Table with all rows. `columns`: [{name, cell(row), className}].
export function Table({ label, columns, rows, keyOf }) {
  return html`<div class="table-box" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${columns.map((column) => html`<th scope="col" key=${column.name} class=${column.className || ""}>${column.name}</th>`)}</tr></thead>
    <tbody>${rows.map((row, index) => html`<tr key=${keyOf ? keyOf(row) : index}>${columns.map(
      (column) => html`<td key=${column.name} class=${column.className || ""}>${column.cell(row, index)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

// Modal dialog. Escape and the button close it; the focus then returns to the element that had it before.
export function Dialog({ title, onClose, children, footer }) {
  const dialog = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    const element = dialog.current;
    element.showModal();
    return () => {
      element.close();  // elements outside of an open modal dialog cannot receive the focus
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return html`<dialog ref=${dialog} aria-label=${title} onCancel=${(event) => { event.preventDefault(); onClose(); }}>
    <div class="dialog-head"><h2>${title}</h2><button type="button" class="icon-button" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></div>
    <div class="dialog-body">${children}</div>
    ${footer && html`<div class="dialog-foot">${footer}</div>`}
  </dialog>`;
}

const PATHS = {
  overview: "M4 5h16M4 12h10M4 19h6", me: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8Zm-7 8c0-3.3 3.1-6 7-6s7 2.7 7 6", people: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7Zm-6 8c0-3 2.7-5 6-5s6 2 6 5M16 4.5a3.5 3.5 0 0 1 0 6.5m2 3.4c1.8.8 3 2.4 3 4.6",
  workloads: "M4 5h16v4H4zM4 12h16v4H4zM4 19h10", flavors: "M5 4h14v6H5zM5 14h14v6H5zM8 7h.01M8 17h.01", budgets: "M4 6h16v12H4zM4 10h16M8 14h3", audit: "M6 3h9l4 4v14H6zM9 12h7M9 16h5", usage: "M4 20V10m6 10V4m6 16v-8m4 8H3", search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14Zm5-2 5 5",
  whatif: "M4 12h5l6-6h5M9 12l6 6h5M17 3l3 3-3 3M17 15l3 3-3 3", clusters: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z", close: "M6 6l12 12M18 6 6 18", sun: "M12 17a5 5 0 1 0 0-10 5 5 0 0 0 0 10Zm0-15v2m0 16v2M2 12h2m16 0h2M5 5l1.5 1.5m11 11L19 19M5 19l1.5-1.5m11-11L19 5", moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5Z",
  out: "M10 4H5v16h5M14 8l4 4-4 4M9 12h9", menu: "M4 6h16M4 12h16M4 18h16", chevron: "M9 6l6 6-6 6", link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.7-5.7l-1.2 1.2M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.7 5.7l1.2-1.2",
};

export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path d=${PATHS[name]} /></svg>`;
}

// Untrusted text: rendered as text, isolated from the writing direction around it (bdi), and truncated if it is long.
export function Free({ text, longest = 300 }) {
  const [whole, setWhole] = useState(false);
  const value = String(text ?? "");
  if (value.length <= longest || whole) return html`<bdi class="free">${value}</bdi>`;
  return html`<bdi class="free">${value.slice(0, longest)}…</bdi> <button type="button" class="text-button" onClick=${() => setWhole(true)}>Show all</button>`;
}
