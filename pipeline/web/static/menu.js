// The menu: all pages in a row; on a phone some of them behind a button.

const nav = document.querySelector("nav");
const more = nav.querySelector("button");

function open(on) {
  nav.toggleAttribute("data-open", on);
  more.setAttribute("aria-expanded", String(on));
}

/** Mark the page that is shown. */
export function mark(path) {
  open(false);
  for (const link of nav.querySelectorAll("a")) {
    const same = link.getAttribute("href").split("/")[1] === path.split("/")[1];
    if (same) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

more.addEventListener("click", () => open(more.getAttribute("aria-expanded") !== "true"));
nav.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !nav.hasAttribute("data-open")) return;
  open(false);
  more.focus();
});
