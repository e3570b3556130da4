// What one may do to workloads: hold, release, move and prioritise, each with a preview, a reason and an undo; and cancel, without one.
import { ApiError, get, patch, path, post } from "../lib/api.js";
import { plural } from "../lib/format.js";
import { useRights, useSession } from "../lib/session.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { ChangeDialog } from "./change.js";

// Most workloads that are changed together.
export const MOST_CHANGED = 200;
// Workloads of which the effects are computed: each preview copies the state of all queues.
const PREVIEWED = 5;
const AT_A_TIME = 4;
const MOST_NAMESPACES = 49;
const LEAST_PRIORITY = -(2 ** 31), MOST_PRIORITY = 2 ** 31 - 1;

const unfinished = ({ status }) => status.state !== "finished";
// Whether it is on hold, or Sluice or an admin has deactivated it.
const isKept = ({ spec }) => spec.hold || spec.active === false;
const oneNamespace = (workloads) => new Set(workloads.map(({ metadata }) => metadata.namespace)).size === 1;

// `right`: the right that it needs, in place of `patch`; `confirm`: the button of its dialog, in place of `text`; `fits`: whether a workload can be changed so; `everywhere`: needs the right to patch workloads of all namespaces; `spec(value,
// workload)`: the change; `undo(workload)`: the change back, of the workload as it was.
const ACTIONS = {
  hold: { text: "Hold", done: "put on hold", everywhere: true, fits: (workload) => unfinished(workload) && !isKept(workload), spec: () => ({ hold: true }), undo: () => ({ hold: false }),
    says: "It waits until it is released. If it runs, it is stopped first." },
  release: { text: "Release", done: "released", everywhere: true, fits: (workload) => unfinished(workload) && isKept(workload), spec: (_, { spec }) => (spec.active === false ? { hold: false, active: true } : { hold: false }), undo: ({ spec }) => (spec.active === false ? { hold: Boolean(spec.hold), active: false } : { hold: true }),
    says: "It takes part in its queue again." },
  move: { text: "Move", done: "moved", fits: unfinished, spec: (queueName) => ({ queueName }), undo: (workload) => ({ queueName: workload.spec.queueName }), says: "It goes to another LocalQueue of its namespace. If it runs, it is stopped first." },
  prioritise: { text: "Prioritise", done: "prioritised", fits: unfinished, spec: (priority) => ({ priority: Number(priority) }), undo: (workload) => ({ priority: workload.spec.priority }), says: "Higher priorities come first in a queue, and may preempt lower ones." },
  cancel: { text: "Cancel", confirm: "Delete", done: "cancelled", danger: true, right: "cancel", fits: unfinished,
    says: "It is deleted in the cluster with its pods, for ever. To stop it for a time, hold it." },
};

// Names of the actions that the user may take on some of the workloads.
export function useActions(workloads) {
  const { namespaces, everywhere } = useSession();
  const listed = everywhere ? [] : namespaces.slice(0, MOST_NAMESPACES);
  const reviews = {};
  for (const [right, review] of [["patch", { verb: "patch", resource: "workloads" }], ["cancel", { verb: "create", resource: "workloads", subresource: "cancel" }]]) {
    reviews[right] = review;
    for (const namespace of listed) reviews[`${right} in ${namespace}`] = { ...review, namespace };
  }
  const rights = useRights(reviews);
  const may = ({ right = "patch", everywhere: needsAll, fits }, workload) => (rights[right] || (!needsAll && rights[`${right} in ${workload.metadata.namespace}`])) && fits(workload);
  const possible = (name) => workloads.filter((workload) => may(ACTIONS[name], workload));
  const names = Object.keys(ACTIONS).filter((name) => possible(name).length && (name !== "move" || oneNamespace(possible(name))));
  return { names, possible, any: Object.values(rights).some(Boolean) };
}

// Buttons of the actions on `workloads`, the dialog of the chosen one, and what was done last, with its undo. `onDone(resourceVersion)`
// is called after a change.
export function Actions({ workloads, onDone }) {
  const { names, possible } = useActions(workloads);
  const [open, setOpen] = useState(null);
  const [done, setDone] = useState(null);
  const [failure, setFailure] = useState(null);
  const undo = async () => {
    setDone(null);
    const { failed, version } = await changeEach(done.workloads, (workload) => done.action.undo(workload), `Undone: ${done.reason}`);
    setFailure(failed.length ? failed[0].error : null);
    onDone?.(version);
  };
  return html`${names.length > 0 && html`<div class="actions">${names.map((name) => html`<button type="button" class=${`button ${ACTIONS[name].danger ? "danger" : ""}`} key=${name} onClick=${() => setOpen({ name, workloads: possible(name).slice(0, MOST_CHANGED) })}>${ACTIONS[name].text}</button>`)}</div>`}
    ${open && html`<${ActionDialog} action=${ACTIONS[open.name]} name=${open.name} workloads=${open.workloads} onClose=${() => setOpen(null)}
      onDone=${(result) => { setFailure(null); setDone({ action: ACTIONS[open.name], ...result }); onDone?.(result.version); }} />`}
    ${(done || failure) && html`<div class="toast" role="status">${failure ? `Not undone: ${failure.message}` : `${named(done.workloads)} ${done.workloads.length === 1 ? "was" : "were"} ${done.action.done}.`}
      ${done?.action.undo && html`<button type="button" class="text-button" onClick=${undo}>Undo</button>`}<button type="button" class="text-button" onClick=${() => { setDone(null); setFailure(null); }}>Close</button></div>`}`;
}

const named = (workloads) => (workloads.length === 1 ? workloads[0].spec.object.name : plural(workloads.length, "workload"));
const keyOf = ({ metadata: { namespace }, spec: { object } }) => `${namespace}/${object.name}`;
const addressOf = ({ metadata: { namespace, name } }) => path("namespaces", namespace, "workloads", name);

// Deletes a workload's object, or says what would be deleted.
const cancel = ({ metadata: { namespace, name, uid } }, { dryRun = false, reason = "" }) => post(path("namespaces", namespace, "workloads", name, "cancel"),
  { kind: "Cancellation", uid }, { params: { dryRun: dryRun ? "All" : "", reason } });

// Patches the spec of each workload, or cancels it (`specOf` null). Returns the changed ones, the failures, and the newest resourceVersion.
async function changeEach(workloads, specOf, reason) {
  const changed = [], failed = [];
  let version = 0;
  for (let at = 0; at < workloads.length; at += AT_A_TIME) {
    await Promise.all(workloads.slice(at, at + AT_A_TIME).map(async (workload) => {
      try {
        const answer = specOf ? await patch(addressOf(workload), { spec: specOf(workload) }, { reason }) : await cancel(workload, { reason });
        version = Math.max(version, Number(answer.metadata.resourceVersion) || 0);
        changed.push(workload);
      } catch (error) {
        failed.push({ workload, error });
      }
    }));
  }
  return { changed, failed, version };
}

// The effects of several changes, each seen by itself, as one.
function together(impacts) {
  const found = { counts: {}, overQuota: impacts.flatMap((impact) => impact.overQuota || []) };
  for (const kind of ["admitted", "evicted", "impossible"]) {
    found[kind] = [...new Map(impacts.flatMap((impact) => impact[kind]).map((item) => [`${item.namespace}/${item.name}`, item])).values()];
    found.counts[kind] = Math.max(found[kind].length, ...impacts.map((impact) => impact.counts[kind]));
  }
  return found;
}

function ActionDialog({ action, name, workloads, onClose, onDone }) {
  const [value, setValue] = useState(name === "prioritise" ? String(workloads[0].spec.priority) : "");
  const namespace = workloads[0].metadata.namespace;
  const choices = useChoices(name, namespace);
  const send = async ({ dryRun, reason }) => {
    if (dryRun && !action.spec) {
      const deleted = [];
      for (const workload of workloads.slice(0, PREVIEWED)) deleted.push(...(await cancel(workload, { dryRun: true })).objects);
      return { status: { impact: { counts: {}, deleted } } };
    }
    if (dryRun) {
      const impacts = [];
      for (const workload of workloads.slice(0, PREVIEWED)) impacts.push((await patch(addressOf(workload), { spec: action.spec(value, workload) }, { dryRun: true })).status?.impact);
      return { status: { impact: together(impacts.filter(Boolean)) } };
    }
    const { changed, failed, version } = await changeEach(workloads, action.spec && ((workload) => action.spec(value, workload)), reason);
    if (changed.length) onDone({ workloads: changed, reason, version });
    if (failed.length) throw new ApiError(failed[0].error.status, `${failed.length === workloads.length ? "Nothing was changed" : `${failed.length} of ${workloads.length} were not changed`}. ${keyOf(failed[0].workload)}: ${failed[0].error.message}`);
    return null;
  };
  const blocked = name === "move" && !value ? "Choose a LocalQueue to see the effects."
    : name === "prioritise" && !(/^-?\d{1,10}$/.test(value) && Number(value) >= LEAST_PRIORITY && Number(value) <= MOST_PRIORITY) ? "Give a whole number, such as 100." : "";
  const inputs = name === "move" ? html`<label class="field"><span>LocalQueue</span><select value=${value} onChange=${(event) => setValue(event.currentTarget.value)}><option value="">Choose …</option>
      ${choices.filter((choice) => !workloads.every(({ spec }) => spec.queueName === choice.value)).map((choice) => html`<option key=${choice.value} value=${choice.value}>${choice.text}</option>`)}</select></label>`
    : name === "prioritise" && html`<label class="field"><span>Priority</span><input inputmode="numeric" list="priorities" value=${value} onInput=${(event) => setValue(event.currentTarget.value)} />
      <datalist id="priorities">${choices.map((choice) => html`<option key=${choice.text} value=${choice.value}>${choice.text}</option>`)}</datalist></label>`;
  return html`<${ChangeDialog} title=${`${action.text} ${named(workloads)}`} action=${action.confirm || action.text} danger=${action.danger} send=${send} blocked=${blocked} revision=${value} onClose=${onClose} inputs=${inputs}
    note=${workloads.length > PREVIEWED ? `Computed for the first ${PREVIEWED}, each by itself.` : workloads.length > 1 ? "Each change by itself." : ""}>
    <p>${action.says}</p>${workloads.length > 1 && html`<details class="names" open=${Boolean(action.danger)}><summary>${plural(workloads.length, "workload")}</summary><ul class="bullets">${workloads.map((workload) => html`<li key=${workload.metadata.uid}><bdi>${keyOf(workload)}</bdi></li>`)}</ul></details>`}<//>`;
}

// LocalQueues to move to, or priorities by name: [{value, text}].
function useChoices(name, namespace) {
  const [choices, setChoices] = useState([]);
  useEffect(() => {
    const abort = new AbortController();
    const address = { move: path("namespaces", namespace, "localqueues"), prioritise: path("workloadpriorityclasses") }[name];
    const choiceOf = (item) => (name === "move" ? { value: item.metadata.name, text: `${item.metadata.name} → ${item.spec.clusterQueue}` } : { value: String(item.value), text: item.metadata.name });
    if (address) get(address, {}, abort.signal).then((page) => setChoices(page.items.map(choiceOf)), () => {});  // without the right to list them, a value can be typed
    return () => abort.abort();
  }, [name, namespace]);
  return choices;
}
