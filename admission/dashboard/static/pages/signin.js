// Sign-in page: at the OIDC issuer, if there is one, or with a bearer token of the cluster. The token is stored in the session on
// the server only, not in the browser.
import { get, post } from "../lib/api.js";
import { Icon, useTitle } from "../lib/components.js";
import { toIssuer } from "../lib/oidc.js";
import { html, useEffect, useRef, useState } from "../lib/ui.js";

// Host of the OIDC issuer; "" if there is none, or until it is known.
function useIssuer() {
  const [host, setHost] = useState("");
  useEffect(() => {
    get("/login").then(({ oidc }) => oidc && setHost(new URL(oidc.issuer).host), () => {});
  }, []);
  return host;
}

function AtIssuer({ host, refusal }) {
  const [error, setError] = useState(refusal);
  const [busy, setBusy] = useState(false);
  const go = async () => {
    setBusy(true);
    setError("");
    try {
      await toIssuer();
    } catch (failure) {
      setError(failure.message);
      setBusy(false);
    }
  };
  return html`${error && html`<p class="field-error" role="alert">${error}</p>`}
    <button type="button" class="button primary" disabled=${busy} onClick=${go}>${busy ? "Signing in …" : `Sign in at ${host}`}</button>
    <p class="soft or">or with a token</p>`;
}

export function SignIn({ onSignedIn, ended, refusal }) {
  useTitle("Sign in");
  const issuer = useIssuer();
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const field = useRef(null);
  const submit = async (event) => {
    event.preventDefault();
    const token = field.current.value.trim();
    if (!token) {
      setError("Paste a token first.");
      field.current.focus();
      return;
    }
    setBusy(true);
    setError("");
    try {
      await post("/login", { token });
      field.current.value = "";
      if (await onSignedIn()) return;
      setError("The browser has not kept the session. Allow cookies for this site, then sign in again.");
      setBusy(false);
    } catch (failure) {
      setError(failure.status === 401 ? "The cluster does not know this token: it may have expired, or it was not copied as a whole." : failure.message);
      setBusy(false);
      field.current?.select();
    }
  };
  return html`<main class="sign-in"><form class="card" onSubmit=${submit}>
    <p class="brand"><${Mark} /> Sluice</p>
    <h1>Sign in</h1>
    ${ended && html`<p class="notice" role="status">Your session has ended. Sign in again to go on where you were.</p>`}
    ${issuer && html`<${AtIssuer} host=${issuer} refusal=${refusal} />`}
    <label for="token">Cluster token</label>
    <input id="token" ref=${field} type="password" autocomplete="off" spellcheck="false" autofocus aria-describedby="token-help" aria-invalid=${String(Boolean(error))} />
    ${error && html`<p class="field-error" role="alert">${error}</p>`}
    <button type="submit" class=${issuer ? "button" : "button primary"} disabled=${busy}>${busy ? "Signing in …" : "Sign in"}</button>
    <div id="token-help" class="soft help">
      <p>A token of your ServiceAccount, for example:</p>
      <pre><code>kubectl create token NAME -n NAMESPACE</code></pre>
      <p>Or the administrator's token, with which Sluice was started as SLUICE_ADMIN_TOKEN.</p>
      <p>You see what the cluster's roles let you see. The token stays on the server and is forgotten when you sign out.</p>
    </div>
  </form></main>`;
}

export function Mark() {
  return html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" /><path d="M7 10h18M7 16h12M7 22h6" /></svg>`;
}

export { Icon };
