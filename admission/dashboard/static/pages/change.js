// Dialogs of changes, and those of a ClusterQueue: each change is previewed by a dry run, and needs a reason before it can be applied.
import { ApiError, path, patch, post } from "../lib/api.js";
import { Badge, Dialog, Empty, Failure, Free, Loading, PASSING } from "../lib/components.js";
import { plural, QUANTITY, resourceName } from "../lib/format.js";
import { workloadLink } from "../lib/router.js";
import { html, useEffect, useState } from "../lib/ui.js";
import { Difference } from "./history.js";

const NAMED = 20;
const UNANSWERED = "Sluice did not answer: the change may or may not have been made. Look at what it is now, and at its history, before you try again.";

// Impact of a change, from the API's dry run.
function Impact({ impact }) {
  const { counts, admitted, evicted, impossible, overQuota, deleted } = impact;
  if (deleted) return html`<div class="impact"><p><${Badge} tone="bad">Deleted for ever<//></p><ul class="bullets">${deleted.slice(0, NAMED).map((each) => html`<li key=${each.uid}>${each.kind} <bdi>${each.namespace}/${each.name}</bdi></li>`)}
    ${deleted.length > NAMED && html`<li class="soft">and ${deleted.length - NAMED} more</li>`}</ul></div>`;
  const nothing = !counts.admitted && !counts.evicted && !counts.impossible && !overQuota?.length;
  if (nothing) return html`<p class="impact">Nothing changes at once: no workload would be admitted or evicted.</p>`;
  return html`<div class="impact">
    <${Group} tone="bad" title=${`${plural(counts.evicted, "workload")} would be evicted`} number=${counts.evicted} items=${evicted} />
    <${Group} tone="bad" title=${`${plural(counts.impossible, "workload")} could never run any more`} number=${counts.impossible} items=${impossible} />
    <${Group} tone="ok" title=${`${plural(counts.admitted, "workload")} would be admitted`} number=${counts.admitted} items=${admitted} />
    ${overQuota?.length > 0 && html`<p><${Badge} tone="warn">Over quota<//> More is in use than the new quota allows:</p>
      <ul class="bullets">${overQuota.map((over) => html`<li key=${JSON.stringify(over)}>${over.clusterQueue ? "ClusterQueue" : "Cohort"} <bdi>${over.clusterQueue || over.cohort}</bdi>: ${over.by} of ${resourceName(over.resource)} in flavor ${over.flavor}</li>`)}</ul>`}
  </div>`;
}

function Group({ tone, title, number, items }) {
  if (!number) return null;
  return html`<p><${Badge} tone=${tone}>${title}<//></p><ul class="bullets">${items.slice(0, NAMED).map((item) => html`<li key=${`${item.namespace}/${item.name}`}>
    <a href=${workloadLink(item.namespace, item.name)}><bdi>${item.namespace}/${item.name}</bdi></a>${item.message && html` <span class="soft"><${Free} text=${item.message} longest=${160} /></span>`}</li>`)}
    ${number > NAMED && html`<li class="soft">and ${number - NAMED} more</li>`}</ul>`;
}

// Dialog of a change. `send({dryRun, reason})` sends it. `inputs`: form fields; `blocked`: message about invalid input; `note`: about
// the preview.
export function ChangeDialog({ title, send, inputs, blocked = "", danger = false, action = "Apply", revision = "", note = "", onClose, children }) {
  const [reason, setReason] = useState("");
  const [preview, setPreview] = useState({ key: null, impact: null, error: null });
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  const [round, setRound] = useState(0);
  const again = () => setRound((n) => n + 1);
  useEffect(() => {
    if (blocked) return undefined;
    let current = true;
    const timer = setTimeout(async () => {
      try {
        const answer = await send({ dryRun: true, reason: "" });
        if (current) setPreview({ key: revision, impact: answer.status?.impact, error: null });
      } catch (error) {
        if (current) setPreview({ key: revision, impact: null, error });
      }
    }, 300);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [revision, blocked, round]);
  const known = preview.key === revision;
  const apply = async (event) => {
    event.preventDefault();
    setBusy(true);
    setFailure(null);
    try {
      await send({ dryRun: false, reason: reason.trim() });
      onClose();
    } catch (error) {
      setFailure(error.status ? error : new ApiError(0, UNANSWERED));
      setBusy(false);
    }
  };
  const ready = known && preview.impact && reason.trim() && !blocked && !busy;
  return html`<${Dialog} title=${title} onClose=${onClose} footer=${html`<button type="button" class="button" onClick=${onClose}>${action === "Delete" ? "Keep" : "Cancel"}</button>
      <button type="submit" form="change" class=${`button ${danger ? "danger" : "primary"}`} disabled=${!ready}>${busy ? "Applying …" : action}</button>`}>
    <form id="change" onSubmit=${apply}>
      ${children}${inputs}
      <h3>Effects</h3>
      ${blocked ? html`<p class="soft">${blocked}</p>` : !known ? html`<${Loading} lines=${2} />` : preview.error ? html`<${Failure} error=${preview.error} retry=${PASSING.includes(preview.error.status) && again} />`
        : preview.impact ? html`<${Impact} impact=${preview.impact} />${note && html`<p class="soft small">${note}</p>`}` : html`<${Empty} title="No preview">The server gave none.<//>`}
      <label class="field"><span>Reason</span><textarea required value=${reason} placeholder="Why, for those who look it up later" onInput=${(event) => setReason(event.currentTarget.value)}></textarea>
        <small class="soft">It is kept in the history and the audit.</small></label>
      ${failure && html`<${Failure} error=${failure} />`}
    </form>
  <//>`;
}

const STOPS = {
  Hold: { title: "Stop", text: "No further workload is admitted. What runs goes on.", action: "Stop the queue" },
  HoldAndDrain: { title: "Drain", text: "No further workload is admitted, and what runs is evicted; it waits until the queue is resumed.", action: "Drain the queue", danger: true },
  None: { title: "Resume", text: "Workloads are admitted again.", action: "Resume the queue" },
};

export function StopDialog({ queue, policy, onClose }) {
  const { title, text, action, danger } = STOPS[policy], name = queue.metadata.name;
  const send = (options) => patch(path("clusterqueues", name), { spec: { stopPolicy: policy } }, options);
  return html`<${ChangeDialog} title=${`${title} ${name}`} action=${action} danger=${danger} send=${send} onClose=${onClose}><p>${text}</p><//>`;
}

export function RollbackDialog({ address, name, version, onClose }) {
  const send = ({ dryRun, reason }) => post(`${address}/rollback`, { kind: "Rollback", revision: version.revision },
    { params: { dryRun: dryRun ? "All" : "", reason } });
  return html`<${ChangeDialog} title=${`Go back to revision ${version.revision}`} action="Go back" send=${send} onClose=${onClose}>
    <p>${name} becomes what <bdi>${version.user}</bdi> made of it then. Later changes are undone; they stay in the history.</p><${Difference} differences=${version.diff} /><//>`;
}

const FIELDS = [["nominalQuota", "Nominal"], ["borrowingLimit", "May borrow"], ["lendingLimit", "May lend"]];

export function QuotaDialog({ queue, onClose }) {
  const [groups, setGroups] = useState(() => structuredClone(queue.spec.resourceGroups || []));
  const [version] = useState(queue.metadata.resourceVersion);
  const set = (place, name, value) => setGroups((old) => {
    const next = structuredClone(old);
    const resource = next[place[0]].flavors[place[1]].resources[place[2]];
    if (value.trim()) resource[name] = value.trim();
    else delete resource[name];
    return next;
  });
  const rows = groups.flatMap((group, g) => group.flavors.flatMap((flavor, f) => flavor.resources.map((resource, r) => ({ place: [g, f, r], flavor: flavor.name, resource }))));
  const wrong = rows.find(({ resource }) => resource.nominalQuota === undefined || FIELDS.some(([field]) => resource[field] !== undefined && !QUANTITY.test(resource[field])));
  const same = JSON.stringify(groups) === JSON.stringify(queue.spec.resourceGroups || []);
  const blocked = wrong ? `${wrong.flavor}, ${resourceName(wrong.resource.name)}: give an amount such as 16, 500m or 64Gi${wrong.resource.nominalQuota === undefined ? "; the nominal quota cannot be empty" : ""}.`
    : !rows.length ? "The ClusterQueue has no resource groups. Add them to its manifest, with `sluice edit` or `sluice apply`."
    : same ? "Change an amount to see the effects." : "";
  const send = (options) => patch(path("clusterqueues", queue.metadata.name), { metadata: { resourceVersion: version }, spec: { resourceGroups: groups } }, options);
  return html`<${ChangeDialog} title=${`Quota of ${queue.metadata.name}`} send=${send} blocked=${blocked} revision=${JSON.stringify(groups)} onClose=${onClose} inputs=${html`
    <div class="table-box" tabindex="0" role="region" aria-label="Amounts"><table class="inputs"><thead><tr><th scope="col">Flavor</th><th scope="col">Resource</th>${FIELDS.map(([field, text]) => html`<th scope="col" key=${field}>${text}</th>`)}</tr></thead>
    <tbody>${rows.map(({ place, flavor, resource }) => html`<tr key=${place.join()}><td><bdi>${flavor}</bdi></td><td>${resourceName(resource.name)}</td>
      ${FIELDS.map(([field, text]) => html`<td key=${field}><input size="7" spellcheck="false" value=${resource[field] ?? ""} placeholder=${field === "nominalQuota" ? "" : "no limit"}
        aria-label=${`${text}, ${flavor}, ${resourceName(resource.name)}`} onInput=${(event) => set(place, field, event.currentTarget.value)} /></td>`)}</tr>`)}</tbody></table></div>`}><//>`;
}
