// The session: user, readable namespaces and rights. Pages offer only actions that the user has the right to.
import { get, list, path, post } from "./api.js";
import { useCollection } from "./live.js";
import { link } from "./router.js";
import { createContext, useContext, useEffect, useState } from "./ui.js";

export const SessionContext = createContext(null);
export const useSession = () => useContext(SessionContext);

// The page of all queues that the user may see, for the path that leads to a queue or workload.
export const useHome = () => (useSession().rights.clusterQueues ? { href: link(), text: "Overview" } : { href: link("queues"), text: "Queues" });

const REVIEWS = {
  clusterQueues: { verb: "list", resource: "clusterqueues" },
  cohorts: { verb: "list", resource: "cohorts" },
  budgets: { verb: "list", resource: "budgets" },
  reservations: { verb: "list", resource: "reservations" },
  flavors: { verb: "list", resource: "resourceflavors" },
  localQueues: { verb: "list", resource: "localqueues" },
  subscriptions: { verb: "list", resource: "subscriptions" },
  usage: { verb: "get", resource: "reports", name: "usage" },
  pending: { verb: "get", resource: "reports", name: "pending" },
  attention: { verb: "get", resource: "reports", name: "attention" },
  nodes: { verb: "get", resource: "reports", name: "nodes" },
  clusters: { verb: "get", resource: "reports", name: "clusters" },
  consistency: { verb: "list", resource: "audits" },
  whatIfs: { verb: "create", resource: "whatifs" },
  audit: { verb: "list", resource: "auditrecords" },
};

export async function load() {
  const who = await get("/session");  // first and alone: without a session it is the only request
  const [namespaces, access] = await Promise.all([
    get("/session/namespaces"), post("/session/access", { reviews: Object.values(REVIEWS) })]);
  const rights = Object.fromEntries(Object.keys(REVIEWS).map((name, index) => [name, access.allowed[index]]));
  return { ...who, everywhere: namespaces.all, namespaces: namespaces.namespaces, rights };
}

// Reviews rights, {name: {verb, resource, ...}}: returns {name: allowed}; {} until the response arrives.
export function useRights(reviews) {
  const key = JSON.stringify(reviews);
  const [found, setFound] = useState({ key: "", rights: {} });
  useEffect(() => {
    let current = true;
    post("/session/access", { reviews: Object.values(reviews) }).then(
      ({ allowed }) => current && setFound({ key, rights: Object.fromEntries(Object.keys(reviews).map((name, index) => [name, allowed[index]])) }),
      () => current && setFound({ key, rights: {} }));
    return () => {
      current = false;
    };
  }, [key]);
  return found.key === key ? found.rights : {};
}

const POLL_MS = 5000;

// Objects of a namespaced resource in all namespaces that the user may read: {items, ready, error}. One watch for all namespaces
// or a single one; several namespaces are polled, as browsers allow few connections.
export function useReadable(plural, params = {}) {
  const session = useSession();
  const whole = session.everywhere || session.namespaces.length === 1;
  const address = session.everywhere ? path(plural) : session.namespaces.length === 1 ? path("namespaces", session.namespaces[0], plural) : null;
  const watched = useCollection(whole ? address : null, params);
  const [polled, setPolled] = useState({ items: [], ready: false, error: null });
  const key = JSON.stringify([plural, params]);
  useEffect(() => {
    if (whole || !session.namespaces.length) return undefined;
    const abort = new AbortController();
    const read = async () => {
      if (document.hidden) return;
      try {
        const lists = await Promise.all(session.namespaces.map((namespace) => list(path("namespaces", namespace, plural), params, abort.signal)));
        setPolled({ items: lists.flatMap((each) => each.items), ready: true, error: null });
      } catch (error) {
        if (error.name !== "AbortError") setPolled((old) => ({ ...old, error: old.ready && !error.status ? null : error }));
      }
    };
    read();
    const timer = setInterval(read, POLL_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [whole, key]);
  if (whole) return watched;
  return session.namespaces.length ? polled : { items: [], ready: true, error: null };
}

const MOST_LISTED = 500;
const MOST_NAMESPACES = 20;

// First objects of a namespaced resource in all readable namespaces, for lists that may be very long; read again when `version`
// changes. Returns {items, more}: `more` is true if there are further ones.
export function useSome(plural, params, version) {
  const session = useSession();
  const [found, setFound] = useState({ items: [], more: false });
  const key = JSON.stringify([plural, params, version]);
  useEffect(() => {
    const abort = new AbortController();
    const addresses = session.everywhere ? [path(plural)] : session.namespaces.slice(0, MOST_NAMESPACES).map((namespace) => path("namespaces", namespace, plural));
    Promise.all(addresses.map((address) => get(address, { ...params, limit: MOST_LISTED }, abort.signal))).then(
      (pages) => setFound({ items: pages.flatMap((page) => page.items), more: pages.some((page) => page.metadata.continue) || (!session.everywhere && session.namespaces.length > MOST_NAMESPACES) }),
      () => {});  // ignored: the list of active workloads is shown anyway, and reports its own errors
    return () => abort.abort();
  }, [key]);
  return found;
}
