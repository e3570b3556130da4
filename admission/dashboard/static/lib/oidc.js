// OpenID Connect code flow in the browser: redirect to the issuer, return to the page "sign-in" with a code.
import { post } from "./api.js";
import { link, navigate } from "./router.js";

const PAGE = "/ui/sign-in";
const NEXT = "sluice-next";

// Begins a sign-in: redirects to the issuer. The current page is remembered, and opened again afterwards.
export async function toIssuer() {
  const { location: address } = await post("/login/oidc", {});
  if (location.pathname !== PAGE) sessionStorage.setItem(NEXT, location.pathname + location.search);
  location.assign(address);
}

// Whether the current URL is a redirect back from the issuer.
export const comesBack = () => location.pathname === PAGE && new URLSearchParams(location.search).has("state");

// Finishes a sign-in with the code in the URL. The code is removed from the URL first, also if this fails.
export async function finish() {
  const given = Object.fromEntries(new URLSearchParams(location.search));
  const next = sessionStorage.getItem(NEXT) || link();
  sessionStorage.removeItem(NEXT);
  navigate(next, { replace: true });
  await post("/login/oidc/finish", given);
}
