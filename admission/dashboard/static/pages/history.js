// History of a queue object: versions with author, time, reason and differences.
import { get } from "../lib/api.js";
import { Empty, Failure, Free, Loading, Time } from "../lib/components.js";
import { resourceName } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { html, useState } from "../lib/ui.js";

const VERBS = { create: "created it", replace: "changed it", delete: "deleted it" };

export function History({ address, changes, mayRollBack, onRollback }) {
  const first = useAnswer(`${address}/history`, { limit: 50 }, { deps: [changes], leastMs: 1000 });
  const [more, setMore] = useState({ items: [], token: null, error: null });
  if (first.error && !first.data) return html`<${Failure} error=${first.error} retry=${first.again} />`;
  if (!first.data) return html`<${Loading} />`;
  const items = [...first.data.items, ...more.items];
  const token = more.items.length ? more.token : first.data.metadata.continue;
  if (!items.length) return html`<${Empty} title="No versions">Each change of the queue is kept here.<//>`;
  const load = async () => {
    try {
      const page = await get(`${address}/history`, { limit: 50, continue: token });
      setMore((old) => ({ items: [...old.items, ...page.items], token: page.metadata.continue, error: null }));
    } catch (error) {
      setMore((old) => ({ ...old, error }));
    }
  };
  return html`<ol class="timeline">${items.map((version, index) => html`<li key=${version.revision} class="calm">
    <p><b><${Free} text=${version.user || "unknown"} longest=${80} /></b> ${VERBS[version.operation] || version.operation} <span class="soft"><${Time} at=${version.at} /></span>
      ${mayRollBack && index > 0 && version.operation !== "delete" && html` <button type="button" class="text-button" onClick=${() => onRollback(version)}>Go back to this</button>`}</p>
    ${version.reason ? html`<p class="quote"><${Free} text=${version.reason} /></p>` : html`<p class="soft">No reason was given.</p>`}
    <${Difference} differences=${version.operation === "create" ? [] : version.diff} object=${version.object} />
  </li>`)}</ol>
  ${more.error ? html`<${Failure} error=${more.error} retry=${load} />` : token && html`<button type="button" class="button" onClick=${load}>Older versions</button>`}`;
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

const QUOTA = /^spec\.resourceGroups\[(\d+)\]\.flavors\[(\d+)\]\.resources\[(\d+)\]\.(\w+)$/;

// Describes the path of a change. Quota is described by flavor and resource, since the path has only their indices.
function placed(path, object) {
  const [, group, flavor, resource, field] = QUOTA.exec(path) || [];
  const inFlavor = object?.spec?.resourceGroups?.[group]?.flavors?.[flavor], quota = inFlavor?.resources?.[resource];
  return quota ? html`<span title=${path}><b>${resourceName(quota.name)}</b> in <bdi>${inFlavor.name}</bdi>, ${field}</span>` : html`<code>${path}</code>`;
}

// `object`: the version of the object that contains the changed field.
export function Difference({ differences, object }) {
  if (!differences?.length) return null;
  return html`<ul class="diff">${differences.slice(0, 30).map((change, index) => html`<li key=${index}>${placed(change.path, object)}
    ${change.before !== undefined && html` <del><${Free} text=${text(change.before)} longest=${120} /></del>`}
    ${change.after !== undefined && html` <ins><${Free} text=${text(change.after)} longest=${120} /></ins>`}</li>`)}</ul>`;
}
