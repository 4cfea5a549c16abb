// Who looks at this page, and what he may do.

import { get, post, toLogin } from "./api.js";
import { el } from "./dom.js";

let session = null;

/** Once, before the first page is shown. */
export async function load() {
  session = await get("/session");
  if (!session.who) toLogin();
  document.documentElement.dataset.role = session.role ?? "";
  showWarning();
  showVisitor();
}

/** Whether labels, models and the like may be changed; what is of class "operate" is hidden from others anyway. */
export const mayOperate = () => session?.role === "operator";

function showVisitor() {
  const place = document.querySelector("#visitor");
  if (!session.tokens_needed || !session.who) return;
  place.replaceChildren(
    el("span", { title: session.role === "viewer" ? "may look, not change anything" : "may look and change" },
      session.who, el("span.role", {}, ` (${session.role})`)),
    el("button.link", { type: "button", onclick: logOut }, "Log out"));
}

function showWarning() {
  const place = document.querySelector("#warning");
  place.hidden = !session.warning;
  place.textContent = session.warning ? `Warning: ${session.warning}` : "";
}

async function logOut() {
  await post("/session", {}, "DELETE").catch(() => {});
  toLogin();
}
