// Live data while the page is visible: hidden pages keep no connection open and send no requests.
import { ApiError, get, list, onSignedOut, serverNow, watch } from "./api.js";
import { useEffect, useMemo, useRef, useState } from "./ui.js";

const RENDER_MS = 120;
const LONGEST_PAUSE_MS = 15000;
// Shortest time between the starts of two requests of a watch, whatever ends it so early.
const LEAST_WATCH_MS = 2000;

let reconnecting = 0;
const listeners = new Set();

// Whether any watch is reconnecting, for the indicator in the header.
export function useReconnecting() {
  const [count, setCount] = useState(reconnecting);
  useEffect(() => {
    listeners.add(setCount);
    return () => listeners.delete(setCount);
  }, []);
  return count > 0;
}

function countReconnecting(by) {
  reconnecting += by;
  for (const listener of listeners) listener(reconnecting);
}

function visible(signal) {
  return new Promise((resolve) => {
    const done = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", done);
      resolve();
    };
    document.addEventListener("visibilitychange", done);
    signal.addEventListener("abort", done);
    done();
  });
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      removeEventListener("online", done);
      resolve();
    }
    addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}

const keyOf = (object) => object.metadata.uid || `${object.metadata.namespace || ""}/${object.metadata.name}`;

// Keeps `state` = {items: Map, error, ready} in sync with a list of the API, by list and watch, until `signal` is aborted.
async function follow(address, params, state, changed, signal) {
  let failures = 0, lost = false;
  const again = (isLost) => {
    if (isLost !== lost) countReconnecting(isLost ? 1 : -1);
    lost = isLost;
  };
  signal.addEventListener("abort", () => again(false));
  let resourceVersion = "";
  while (!signal.aborted) {
    await visible(signal);
    if (signal.aborted) return;
    const hidden = new AbortController();
    let offline = false;
    const hide = () => document.hidden && hidden.abort();
    const stop = () => hidden.abort();
    const cut = () => {
      offline = true;
      hidden.abort();
    };
    addEventListener("offline", cut);
    document.addEventListener("visibilitychange", hide);
    signal.addEventListener("abort", stop);
    try {
      if (!resourceVersion) {
        const found = await list(address, params, hidden.signal);
        state.items = new Map(found.items.map((item) => [keyOf(item), item]));
        state.ready = true;
        resourceVersion = found.resourceVersion;
      }
      state.error = null;
      failures = 0;
      again(false);
      changed();
      const began = performance.now();
      await watch(address, { ...params, resourceVersion }, (event) => {
        resourceVersion = event.object.metadata.resourceVersion;
        if (event.type === "BOOKMARK") return;
        if (event.type === "DELETED") state.items.delete(keyOf(event.object));
        else state.items.set(keyOf(event.object), event.object);
        changed();
      }, hidden.signal);
      await pause(Math.max(0, LEAST_WATCH_MS - (performance.now() - began)), signal);
    } catch (error) {
      if (signal.aborted) return;
      if (offline || error.name !== "AbortError") {
        if (error.status === 410) resourceVersion = "";
        else if (error.status === 401 || error.status === 403 || error.status === 404 || error.status === 400) {
          again(false);
          state.error = error;
          changed();
          return;
        } else {
          failures += 1;
          again(true);
          if (!state.ready) state.error = error instanceof ApiError ? error : new ApiError(0, String(error));
          changed();
          await pause(Math.min(LONGEST_PAUSE_MS, 500 * 2 ** failures), signal);
        }
      }
    } finally {
      document.removeEventListener("visibilitychange", hide);
      signal.removeEventListener("abort", stop);
      removeEventListener("offline", cut);
    }
  }
}

// Objects of a list, kept up to date by a watch: {items, ready, error, version}. Without an address no request is sent.
export function useCollection(address, params = {}) {
  const key = address && JSON.stringify([address, params]);
  const [, render] = useState(0);
  const ref = useRef({});
  if (ref.current.key !== key) ref.current = { key, state: { items: new Map(), ready: false, error: null, version: 0 } };
  const { state } = ref.current;
  useEffect(() => {
    if (!address) return undefined;
    const abort = new AbortController();
    let timer = 0;
    follow(address, params, state, () => {
      if (timer) return;
      timer = setTimeout(() => {
        timer = 0;
        state.version += 1;
        if (!abort.signal.aborted) render((n) => n + 1);
      }, state.version ? RENDER_MS : 0);
    }, abort.signal);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key]);
  const items = useMemo(() => [...state.items.values()], [state, state.version]);
  return { items, ready: state.ready, error: state.error, version: state.version };
}

// One response, requested again when `deps` change and every `everyMs`, at most once in `leastMs`; meanwhile the last one is kept.
// `first`: a recent response to start with. Returns {data, error, again()}.
export function useAnswer(address, params = {}, { everyMs = 0, leastMs = 0, deps = [], first = null } = {}) {
  const key = address && JSON.stringify([address, params]);
  const [found, setFound] = useState({ key: first && key, data: first, error: null });
  const [round, setRound] = useState(0);
  const last = useRef({ key: null, at: 0 });
  useEffect(() => {
    if (!address || (first && round === 0)) return undefined;
    const abort = new AbortController();
    const wait = last.current.key === key ? Math.max(0, leastMs - (performance.now() - last.current.at)) : 0;
    const timer = setTimeout(async () => {
      await visible(abort.signal);
      if (abort.signal.aborted) return;
      last.current = { key, at: performance.now() };
      try {
        const data = await get(address, params, abort.signal);
        setFound({ key, data, error: null });
      } catch (error) {
        if (error.name === "AbortError") return;
        setFound((old) => ({ key, data: old.key === key && error.status !== 403 ? old.data : null, error }));
        if (!error.status) await pause(2000, abort.signal);
        if (!error.status && !abort.signal.aborted) setRound((n) => n + 1);
      }
    }, wait);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key, round, ...deps]);
  useEffect(() => {
    if (!everyMs || !address) return undefined;
    const timer = setInterval(() => document.hidden || setRound((n) => n + 1), everyMs);
    return () => clearInterval(timer);
  }, [key, everyMs]);
  const current = found.key === key ? found : { data: null, error: null };
  return { data: current.data, error: current.error, again: () => setRound((n) => n + 1) };
}

let now = serverNow();
const tickers = new Set();
setInterval(() => {
  if (document.hidden) return;
  now = serverNow();
  for (const tick of tickers) tick(now);
}, 1000);

// Current time by Sluice's clock (Unix ms), updated every second.
export function useNow() {
  const [value, setValue] = useState(serverNow());
  useEffect(() => {
    tickers.add(setValue);
    return () => tickers.delete(setValue);
  }, []);
  return value;
}

export { onSignedOut };
