// A token becomes a cookie that no script can read; then back to where one wanted to go.

import { get, post } from "./api.js";

const form = document.querySelector("#login");
const field = document.querySelector("#token");
const problem = document.querySelector("#problem");

/** Only to one of our own pages: whoever made the link must not choose another site. */
function wanted() {
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  const target = new URL(next, location.origin);
  const local = next.startsWith("/") && target.origin === location.origin && target.pathname !== "/login";
  return local ? target.pathname + target.search : "/";
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  problem.textContent = "";
  try {
    await post("/session", { token: field.value.trim() });
    field.value = "";
    location.replace(wanted());
  } catch (error) {
    problem.textContent = field.value.trim() ? error.message : "Paste your token first.";
    field.setAttribute("aria-invalid", "true");
    field.select();
    field.focus();
  } finally {
    button.disabled = false;
  }
});

// A link from another site comes without the cookie, and ends here although one is logged in.
get("/session").then((session) => { if (session.who) location.replace(wanted()); }, () => {});
