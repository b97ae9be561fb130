// What the runner is doing: asked for while the page is visible.
import { setChat } from "./ask.js";
import { draw } from "./chart.js";
import { KeyNeeded, request } from "./key.js";

const at = (id) => document.getElementById(id);
const CARDS = {
  tokens_per_second: (value) => value.toLocaleString(undefined, { maximumFractionDigits: value < 10 ? 1 : 0 }),
  running: String,
  queued: String,
  kv_cache: (value) => `${Math.round(value * 100)}%`,
};
let retry = null;

export async function watch() {
  at("watch-problem").querySelector("button").addEventListener("click", () => retry?.());
  for (;;) {
    let pause = 2;
    try {
      if (!document.hidden) pause = (await show()) ?? pause;
      at("watch-problem").hidden = true;
    } catch (problem) {
      const needsKey = problem instanceof KeyNeeded;
      at("watch-problem").firstElementChild.textContent = needsKey ? problem.message : "The runner is not responding.";
      at("watch-problem").hidden = false;
      setStatus(needsKey ? "…" : "UNREACHABLE");
      await new Promise((resolve) => {
        retry = resolve;
        // A key is asked for again only when somebody wants to give one.
        if (!needsKey) setTimeout(resolve, 2000);
      });
      continue;
    }
    await new Promise((resolve) => setTimeout(resolve, pause * 1000));
  }
}

async function show() {
  const answer = await request("page/status");
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  const told = await answer.json();
  setStatus(told.status);
  setModel(told.model);
  setChat(told.chat);
  at("limit").textContent = ` (limit ${told.limit})`;
  at("version").textContent = `cog-triton ${told.version}`;
  for (const [name, text] of Object.entries(CARDS)) {
    const values = told[name];
    const last = values.at(-1) ?? null;
    at(name).textContent = last === null ? "–" : text(last);
    at(`${name}-peak`).textContent = last === null ? "" : `peak ${text(Math.max(...values))}`;
    draw(at(`${name}-chart`), values, { room: told.kept, top: name === "kv_cache" ? 1 : null });
  }
  showErrors(told.errors);
  return told.seconds;
}

function setModel(name) {
  if (name === null) return;
  at("model").textContent = name;
  document.title = `${name} · cog-triton`;
}

function setStatus(status) {
  at("status").textContent = status;
  at("status").dataset.status = status;
}

function showErrors(errors) {
  at("errors").hidden = errors.length === 0;
  at("no-errors").hidden = errors.length > 0;
  at("errors").tBodies[0].replaceChildren(
    ...errors.map(({ code, name, count, seconds_ago }) => {
      const row = document.createElement("tr");
      for (const [text, kind] of [
        [code, "code"],
        [name, ""],
        [count, "number"],
        [seconds_ago < 60 ? `${seconds_ago} s ago` : `${Math.round(seconds_ago / 60)} min ago`, "number"],
      ]) {
        const cell = row.insertCell();
        cell.textContent = text;
        cell.className = kind;
      }
      return row;
    }),
  );
}
