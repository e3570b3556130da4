// Signing in at the issuer: the browser goes there, and comes back to the page "sign-in" with a code.
import { post } from "./api.js";
import { link, navigate } from "./router.js";

const PAGE = "/ui/sign-in";
const NEXT = "sluice-next";

// To the issuer. What is open now is opened again afterwards.
export async function toIssuer() {
  const { location: address } = await post("/login/oidc", {});
  if (location.pathname !== PAGE) sessionStorage.setItem(NEXT, location.pathname + location.search);
  location.assign(address);
}

// Whether the issuer has sent the browser here.
export const comesBack = () => location.pathname === PAGE && new URLSearchParams(location.search).has("state");

// Ends what was begun. In the address there is no code any more, whatever becomes of it.
export async function finish() {
  const given = Object.fromEntries(new URLSearchParams(location.search));
  const next = sessionStorage.getItem(NEXT) || link();
  sessionStorage.removeItem(NEXT);
  navigate(next, { replace: true });
  await post("/login/oidc/finish", given);
}
