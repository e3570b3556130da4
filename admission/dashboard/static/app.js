// Application shell of the dashboard: session, navigation, current page, theme.
import { ApiError, post } from "./lib/api.js";
import { Empty, Failure, Icon, Loading, PageHead, Card } from "./lib/components.js";
import { onSignedOut, useAnswer, useReconnecting } from "./lib/live.js";
import { comesBack, finish } from "./lib/oidc.js";
import { link, navigate, useAddress } from "./lib/router.js";
import { load, SessionContext, useSession } from "./lib/session.js";
import { Search } from "./lib/search.js";
import { html, render, useEffect, useErrorBoundary, useState } from "./lib/ui.js";
import { AllWorkloads } from "./pages/all.js";
import { Audit } from "./pages/audit.js";
import { Budgets } from "./pages/budgets.js";
import { Clusters } from "./pages/clusters.js";
import { CohortPage } from "./pages/cohort.js";
import { Flavors } from "./pages/flavors.js";
import { MyWork } from "./pages/me.js";
import { LocalQueues, Overview } from "./pages/overview.js";
import { People } from "./pages/people.js";
import { ClusterQueuePage, LocalQueuePage } from "./pages/queue.js";
import { Mark, SignIn } from "./pages/signin.js";
import { TopologyPage } from "./pages/topology.js";
import { UsageReport } from "./pages/usage.js";
import { WhatIf } from "./pages/whatif.js";
import { WorkloadPage } from "./pages/workload.js";

// The first page is the overview; for those who may not list ClusterQueues it is "My work".
const isAdmin = ({ rights }) => rights.clusterQueues;
const NAVIGATION = [
  { page: "", icon: "overview", text: "Overview", needs: isAdmin },
  { page: "", icon: "me", text: "My work", needs: (session) => !isAdmin(session) },
  { page: "me", icon: "me", text: "My work", needs: isAdmin },
  { page: "workloads", icon: "workloads", text: "Workloads" },
  { page: "queues", icon: "overview", text: "Queues", needs: (session) => !isAdmin(session) },
  { page: "usage", icon: "usage", text: "Usage" },
  { page: "budgets", icon: "budgets", text: "Budgets", needs: ({ rights }) => rights.budgets },
  { page: "people", icon: "people", text: "Users and namespaces", needs: ({ rights }) => rights.usage && rights.pending },
  { page: "flavors", icon: "flavors", text: "Flavors and nodes", needs: ({ rights }) => rights.flavors },
  { page: "clusters", icon: "clusters", text: "Clusters", needs: ({ rights }) => rights.clusters },
  { page: "whatif", icon: "whatif", text: "What if", needs: ({ rights }) => rights.whatIfs && rights.clusterQueues },
  { page: "audit", icon: "audit", text: "Audit", needs: ({ rights }) => rights.audit },
];
const PAGES = { me: MyWork, workloads: AllWorkloads, queues: LocalQueues, usage: UsageReport, budgets: Budgets, people: People, flavors: Flavors, clusters: Clusters, whatif: WhatIf, audit: Audit };

function First() {
  const session = useSession();
  if (isAdmin(session)) return html`<${Overview} />`;
  return session.everywhere || session.namespaces.length ? html`<${MyWork} />` : html`<${LocalQueues} />`;
}

function pageOf(parts) {
  const [first, second, third, fourth] = parts;
  const whole = parts.join("/");
  if (!parts.length) return html`<${First} />`;
  if (Object.hasOwn(PAGES, first) && parts.length === 1) return html`<${PAGES[first]} key=${first} />`;
  if (first === "flavors" && third === "topology" && parts.length === 3) return html`<${TopologyPage} key=${whole} flavor=${second} />`;
  if (first === "cohorts" && parts.length === 2) return html`<${CohortPage} key=${whole} name=${second} />`;
  if (first === "queues" && parts.length === 2) return html`<${ClusterQueuePage} key=${whole} name=${second} />`;
  if (first === "namespaces" && third === "queues" && parts.length === 4) return html`<${LocalQueuePage} key=${whole} namespace=${second} name=${fourth} />`;
  if (first === "namespaces" && third === "workloads" && parts.length === 4) return html`<${WorkloadPage} key=${whole} namespace=${second} name=${fourth} />`;
  return html`<${PageHead} title="Page not found" /><${Card}><${Empty} title="There is no such page">The address may be mistyped. Go to the <a href=${link()}>overview</a>.<//><//>`;
}

function Page() {
  const { parts } = useAddress();
  const [error, reset] = useErrorBoundary((failure) => console.error(failure));
  const address = location.pathname;
  useEffect(reset, [address]);
  if (error) return html`<${PageHead} title="This page failed" /><${Failure} error=${error} retry=${reset} />`;
  return pageOf(parts);
}

const THEMES = ["auto", "light", "dark"];

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("sluice-theme") || "auto");
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    localStorage.setItem("sluice-theme", theme);
  }, [theme]);
  return [theme, () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length])];
}

function Connection({ standstill }) {
  const lost = useReconnecting();
  return html`<span class=${`connection ${lost || standstill ? "lost" : ""}`} role="status"><i></i>${lost ? "Connection lost, trying again" : standstill ? "No decisions" : "Live"}</span>`;
}

const STANDSTILL_MS = 20000;

// Why Sluice makes no decisions at present, for a notice on all pages: the data shown may then be outdated. Empty: it does.
function useStandstill() {
  const found = useAnswer("/session", {}, { everyMs: STANDSTILL_MS, first: useSession() });
  return (found.error?.status === 503 ? found.error.message : found.error ? "" : found.data?.standstill) || "";
}

function Shell({ onSignOut }) {
  const { parts } = useAddress();
  const session = useSession();
  const [theme, nextTheme] = useTheme();
  const [open, setOpen] = useState(false);
  const address = location.pathname;
  useEffect(() => setOpen(false), [address]);
  const standstill = useStandstill();
  const here = parts[0] === "me" && !isAdmin(session) ? "" : parts[0] || "";
  useEffect(() => {
    const keys = (event) => {
      if (event.key === "Escape") setOpen(false);
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  return html`<a class="skip" href="#main">Skip to the content</a>
    <div class="shell">
      <aside class=${open ? "open" : ""}>
        <div class="aside-head"><a class="brand" href=${link()}><${Mark} /> Sluice</a>
          <button type="button" class="icon-button menu-button" aria-expanded=${String(open)} aria-controls="nav" aria-label="Menu" onClick=${() => setOpen(!open)}><${Icon} name=${open ? "close" : "menu"} /></button></div>
        <div class="aside-body" id="nav">
          <${Search} />
          <nav aria-label="Pages">${NAVIGATION.filter((each) => !each.needs || each.needs(session)).map((each) => html`<a key=${each.text} href=${each.page ? link(each.page) : link()}
            aria-current=${here === each.page ? "page" : undefined}><${Icon} name=${each.icon} />${each.text}</a>`)}</nav>
          <div class="aside-foot">
            <${Connection} standstill=${standstill} />
            <p class="who" title=${session.user}><${Icon} name="me" /><bdi>${session.user}</bdi></p>
            <div class="aside-buttons">
              <button type="button" class="text-button" onClick=${nextTheme}><${Icon} name=${theme === "dark" ? "moon" : "sun"} />Colours: ${theme}</button>
              <button type="button" class="text-button" onClick=${onSignOut}><${Icon} name="out" />Sign out</button>
            </div>
          </div>
        </div>
      </aside>
      <main id="main" tabindex="-1"><div role="status">${standstill && html`<p class="notice">${standstill}</p>`}</div><${Page} /></main>
    </div>`;
}

// Placeholder until the session is loaded; the same frame as in index.html.
function Frame() {
  return html`<div class="shell"><aside><div class="aside-head"><span class="brand"><${Mark} /> Sluice</span></div></aside>
    <main id="main" aria-busy="true"><${Loading} lines=${8} /></main></div>`;
}

function App() {
  const [session, setSession] = useState(null);
  const [state, setState] = useState("starting");
  const [error, setError] = useState(null);
  const [refusal, setRefusal] = useState("");
  const [unended, setUnended] = useState(null);  // failure of signing out
  const begin = async () => {
    if (comesBack()) {
      try {
        await fetch("/session").catch(() => {});  // consume the request preloaded by index.html, whose answer is from before the sign-in
        await finish();
      } catch (failure) {
        setRefusal(failure.message);
      }
    }
    try {
      setSession(await load());
      setState("signed-in");
      setError(null);
    } catch (failure) {
      if (failure.status === 401) setState((old) => (old === "starting" ? "signed-out" : old));
      else setError(failure);
      return false;
    }
    return true;
  };
  useEffect(() => {
    begin();
    return onSignedOut(() => setState((old) => (old === "signed-in" ? "ended" : old === "starting" ? "signed-out" : old)));
  }, []);
  useEffect(() => {
    if (!error || error.status) return undefined;
    const timer = setTimeout(begin, 3000);
    return () => clearTimeout(timer);
  }, [error]);
  const signOut = async () => {
    setState("signed-out");
    try {
      await post("/logout", {});
    } catch (failure) {
      if (failure.status !== 401) {
        setUnended(new ApiError(failure.status, `You are not signed out yet: ${failure.message}`));
        return;
      }
    }
    setUnended(null);
    navigate(link(), { replace: true });
  };
  if (unended) return html`<main class="sign-in"><div class="card"><${Failure} error=${unended} retry=${signOut} /></div></main>`;
  if (error) return html`<main class="sign-in"><div class="card"><${Failure} error=${error} retry=${begin} /></div></main>`;
  if (state === "starting") return html`<${Frame} />`;
  if (state === "signed-in") return html`<${SessionContext.Provider} value=${session}><${Shell} onSignOut=${signOut} /><//>`;
  return html`<${SignIn} onSignedIn=${begin} ended=${state === "ended"} refusal=${refusal} />`;
}

render(html`<${App} />`, document.getElementById("app"));
