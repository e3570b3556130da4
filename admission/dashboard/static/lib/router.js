// Router: the page and its filters are in the URL, so that they can be bookmarked, shared and reached by the back button.
import { useEffect, useState } from "./ui.js";

const BASE = "/ui";
const listeners = new Set();

const notify = () => {
  for (const listener of listeners) listener(location.pathname + location.search);
};
addEventListener("popstate", notify);

export function navigate(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  if (!replace) scrollTo(0, 0);
  notify();
}

// Returns the URL of a page, with all names escaped: link("queues", "team-a").
export function link(...parts) {
  return `${BASE}/${parts.map(encodeURIComponent).join("/")}`;
}

export const cohortLink = (name) => link("cohorts", name);
export const queueLink = (name) => link("queues", name);
export const localQueueLink = (namespace, name) => link("namespaces", namespace, "queues", name);
export const topologyLink = (flavor) => link("flavors", flavor, "topology");
export const workloadLink = (namespace, name) => link("namespaces", namespace, "workloads", name);

function parts() {
  try {
    return location.pathname.slice(BASE.length).split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return ["?"];  // a malformed escape sequence
  }
}

export function useAddress() {
  const [address, setAddress] = useState(location.pathname + location.search);
  useEffect(() => {
    listeners.add(setAddress);
    return () => listeners.delete(setAddress);
  }, []);
  return { address, parts: parts() };
}

// State in a query parameter of the URL: returns [value, set]. The default value is left out of the URL.
export function useParameter(name, fallback = "") {
  useAddress();
  const value = new URLSearchParams(location.search).get(name) ?? fallback;
  const set = (next) => {
    const params = new URLSearchParams(location.search);
    if (next === fallback || next === "") params.delete(name);
    else params.set(name, next);
    const text = params.toString();
    navigate(location.pathname + (text ? `?${text}` : ""), { replace: true });
  };
  return [value, set];
}

// Follows links within the dashboard without loading the document again.
addEventListener("click", (event) => {
  const anchor = event.target instanceof Element && event.target.closest("a[href]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(anchor.href);
  if (anchor.target || anchor.hasAttribute("download") || url.origin !== location.origin) return;
  if (url.pathname !== BASE && !url.pathname.startsWith(`${BASE}/`)) return;
  if (url.hash && url.pathname + url.search === location.pathname + location.search) return;  // to a place in this page
  event.preventDefault();
  navigate(url.pathname + url.search);
});
