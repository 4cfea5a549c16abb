import { get } from "../api.js";
import { el, replace } from "../dom.js";

export async function show(root) {
  const { tables } = await get("/settings");
  replace(root, el("h1", {}, "Settings"), el("pre", {}, JSON.stringify(tables, null, 1)));
}
