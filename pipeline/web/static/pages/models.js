import { el, empty, replace } from "../dom.js";

export function show(root) {
  replace(root, el("h1", {}, document.title.split(" ")[0]), empty("Nothing yet", "This page comes next."));
}
