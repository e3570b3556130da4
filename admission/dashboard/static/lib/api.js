// Requests to the REST API with the user's session cookie, and watches. Failures are ApiErrors with a message for people.

export const GROUP = "/apis/sluice.dev/v1";

export class ApiError extends Error {
  constructor(status, message, { reason = "", causes = [] } = {}) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.causes = causes;
  }
}

const signedOut = new Set();

// Calls `listener` when the session has ended (401). Returns a function that removes the listener.
export function onSignedOut(listener) {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

// Returns the path of an object or collection, with all names escaped: path("namespaces", "a", "workloads").
export function path(...parts) {
  return `${GROUP}/${parts.map(encodeURIComponent).join("/")}`;
}

function query(params) {
  const pairs = Object.entries(params || {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

const COARSE = 2000;
let ahead = 0;

// Current time by Sluice's clock (Unix ms). All times in responses are of that clock; the browser's may be wrong.
export function serverNow() {
  return Date.now() + ahead;
}

function setClock(response) {
  const offset = Date.parse(response.headers.get("Date")) - Date.now();
  // The header Date has whole seconds, and the response took some time: small differences are ignored.
  if (Number.isFinite(offset)) ahead = Math.abs(offset) > COARSE ? offset : 0;
}

const UNREACHABLE = "Sluice cannot be reached. Check the network connection; the page goes on by itself when it is back.";
const FOREIGN = "Something between browser and Sluice answered instead of Sluice, such as a proxy. If it wants you to sign in, reload the page.";

// Returns the error to throw for one of `fetch`, or of reading its response.
function broken(error) {
  if (error.name === "AbortError") return error;
  return new ApiError(0, error instanceof SyntaxError ? FOREIGN : UNREACHABLE);
}

async function receive(response) {
  try {
    return await response.json();
  } catch (error) {
    throw broken(error);
  }
}

async function send(method, address, { params, body, type = "application/json", headers = {}, signal } = {}) {
  const sent = { Accept: "application/json", "X-Requested-With": "sluice-dashboard", ...headers };
  if (body !== undefined) sent["Content-Type"] = type;
  let response;
  try {
    response = await fetch(address + query(params), {
      method, headers: sent, signal, credentials: "same-origin", body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    throw broken(error);
  }
  setClock(response);
  if (!response.ok) throw await failure(response, address);
  return response;
}

async function failure(response, address) {
  let status = {};
  try {
    status = await response.json();
  } catch {
    // The response of a proxy in between is not JSON.
  }
  if (response.status === 401 && !address.startsWith("/login")) for (const listener of signedOut) listener();
  const message = status.message || `the server answered ${response.status} ${response.statusText}`;
  return new ApiError(response.status, message, { reason: status.reason, causes: status.details?.causes });
}

export async function get(address, params, signal) {
  return receive(await send("GET", address, { params, signal }));
}

export async function post(address, body, options = {}) {
  return receive(await send("POST", address, { body, ...options }));
}

// Sends a JSON merge patch; `reason` is stored in the history and the audit log.
export async function patch(address, body, { dryRun = false, reason = "" } = {}) {
  const params = { dryRun: dryRun ? "All" : "", reason };
  return receive(await send("PATCH", address, { params, body, type: "application/merge-patch+json" }));
}

// Lists all objects, page by page; returns them with the resourceVersion to begin a watch from.
export async function list(address, params, signal) {
  const items = [];
  let page, token = "";
  do {
    page = await get(address, { ...params, limit: 2000, continue: token }, signal);
    items.push(...page.items);
    token = page.metadata.continue;
  } while (token);
  return { items, resourceVersion: page.metadata.resourceVersion };
}

// Calls `onEvent` with each event of a watch until it ends. Rejects when the connection breaks, or what ends is no watch.
export async function watch(address, params, onEvent, signal) {
  await readLines(await send("GET", address, { params: { ...params, watch: "1", allowWatchBookmarks: "1" }, signal }), onEvent);
}

// Sends a question and returns the answer at the end of the response; `onShare` is called with the share of the work that is done.
export async function ask(address, body, onShare, signal) {
  let answer = null;
  try {
    await readLines(await send("POST", address, { body, signal }), (line) => {
      if (line.type === "PROGRESS") onShare(line.share);
      else answer = line.object;
    });
  } catch (error) {
    throw error instanceof ApiError ? error : broken(error);
  }
  if (!answer) throw new ApiError(0, "The server ended the answer before it was complete; try again.");
  return answer;
}

// Calls `onLine` with each line of JSON of a response until it ends. Rejects with the error of a line of the type ERROR.
async function readLines(response, onLine) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done && rest) throw new ApiError(0, FOREIGN);
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line) continue;
      const event = JSON.parse(line);
      if (event.type === "ERROR") throw new ApiError(event.object.code, event.object.message, { reason: event.object.reason });
      onLine(event);
    }
  }
}
