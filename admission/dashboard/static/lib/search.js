// Search among all objects that the user may read; "/" focuses it on any page.
import { get, path } from "./api.js";
import { Icon, stateOf } from "./components.js";
import { cohortLink, link, localQueueLink, navigate, queueLink, workloadLink } from "./router.js";
import { useSession } from "./session.js";
import { html, useEffect, useRef, useState } from "./ui.js";

const SHOWN = 8;
const DELAY_MS = 200;

// Names of all readable queue objects. They are few, and listed each time that the search is opened.
async function names(session) {
  const { rights, everywhere, namespaces } = session;
  const lists = [];
  const add = (allowed, address, make) => allowed && lists.push(get(address, { limit: 5000 }).then((page) => page.items.map(make)));
  add(rights.clusterQueues, path("clusterqueues"), (item) => ({ kind: "ClusterQueue", text: item.metadata.name, href: queueLink(item.metadata.name) }));
  add(rights.cohorts, path("cohorts"), (item) => ({ kind: "Cohort", text: item.metadata.name, href: cohortLink(item.metadata.name) }));
  add(rights.flavors, path("resourceflavors"), (item) => ({ kind: "ResourceFlavor", text: item.metadata.name, href: link("flavors") }));
  const queue = (item) => ({ kind: "LocalQueue", text: `${item.metadata.namespace}/${item.metadata.name}`, href: localQueueLink(item.metadata.namespace, item.metadata.name) });
  add(everywhere && rights.localQueues, path("localqueues"), queue);
  if (!everywhere) for (const namespace of namespaces.slice(0, 20)) add(true, path("namespaces", namespace, "localqueues"), queue);
  return (await Promise.allSettled(lists)).flatMap((each) => (each.status === "fulfilled" ? each.value : []));
}

export function Search() {
  const session = useSession();
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [known, setKnown] = useState(null);
  const [workloads, setWorkloads] = useState({ text: "", items: [], error: null });
  const [chosen, setChosen] = useState(0);
  const field = useRef(null);
  useEffect(() => {
    const keys = (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest?.("input, textarea, select, dialog")) return;
      event.preventDefault();
      field.current.focus();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  useEffect(() => {
    if (open && !known) names(session).then(setKnown);
  }, [open, known]);
  const wanted = text.trim().toLowerCase();
  useEffect(() => {
    if (wanted.length < 2) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(() => get("/session/workloads", { find: wanted, limit: SHOWN }, abort.signal).then(
      (page) => setWorkloads({ text: wanted, items: page.items, error: null }),
      (error) => abort.signal.aborted || setWorkloads({ text: wanted, items: [], error })), DELAY_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [wanted]);
  const found = wanted ? [...(known || []).filter((each) => each.text.toLowerCase().includes(wanted)).sort((a, b) => a.text.length - b.text.length).slice(0, SHOWN),
    ...(workloads.text === wanted ? workloads.items : []).map((workload) => ({ kind: stateOf(workload).text, text: `${workload.metadata.namespace}/${workload.spec.object.name}`, href: workloadLink(workload.metadata.namespace, workload.spec.object.name) }))] : [];
  const close = () => {
    setOpen(false);
    setKnown(null);
    setText("");
    setChosen(0);
  };
  const go = (each) => {
    navigate(each.href);
    close();
    field.current.blur();
  };
  const keys = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setChosen((old) => Math.max(0, Math.min(found.length - 1, old + (event.key === "ArrowDown" ? 1 : -1))));
    } else if (event.key === "Enter" && found[chosen]) go(found[chosen]);
    else if (event.key === "Escape") {
      close();
      field.current.blur();
    }
  };
  const shown = open && wanted !== "";
  return html`<div class="search" role="search" onFocusOut=${(event) => event.currentTarget.contains(event.relatedTarget) || close()}>
    <${Icon} name="search" /><input type="search" role="combobox" aria-label="Search queues and workloads" aria-expanded=${String(shown)} aria-controls="found" aria-activedescendant=${shown && found[chosen] ? `found-${chosen}` : undefined}
      placeholder="Search" title="Press / to search" autocomplete="off" spellcheck="false" ref=${field} value=${text} onFocus=${() => setOpen(true)} onKeyDown=${keys} onInput=${(event) => { setText(event.currentTarget.value); setChosen(0); setOpen(true); }} />
    <kbd aria-hidden="true">/</kbd>
    ${shown && html`<div class="found" id="found" role="listbox" aria-label="Found">
      ${found.map((each, index) => html`<a key=${each.kind + each.text} id=${`found-${index}`} role="option" aria-selected=${String(index === chosen)} tabindex="-1" href=${each.href} onClick=${(event) => { event.preventDefault(); go(each); }}><bdi>${each.text}</bdi><span class="soft">${each.kind}</span></a>`)}
      ${!found.length && html`<p class="soft" role="option" aria-selected="false">${workloads.text === wanted && workloads.error ? workloads.error.message : wanted.length < 2 || workloads.text === wanted ? "Nothing of that name" : "Searching …"}</p>`}
    </div>`}
  </div>`;
}
