// The form: a prompt, its answer as it arrives, and how to ask the same elsewhere.
import { hasKey } from "./key.js";
import { Failed, predict } from "./prediction.js";

const at = (id) => document.getElementById(id);
const form = at("ask");
let running = null;

export function start() {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) run();
  });
  form.addEventListener("input", showCurl);
  at("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  at("stop").addEventListener("click", () => running?.abort());
  showCurl();
}

// Whether the model has a chat template; it is used if there is one, unless somebody chooses otherwise.
export function setChat(hasTemplate) {
  const box = at("chat");
  if (box.disabled !== hasTemplate) return;
  box.disabled = !hasTemplate;
  box.checked = hasTemplate;
  showCurl();
}

async function run() {
  running = new AbortController();
  setRunning(true);
  at("error").hidden = true;
  at("result").textContent = "";
  const output = new Output();
  const began = performance.now();
  let first = null;
  try {
    for await (const { kind, data } of predict(input(), running.signal)) {
      if (kind === "output") {
        first ??= performance.now() - began;
        output.add(data.chunk);
      } else if (kind === "completed") {
        if (data.error) throw new Failed(data.error, data.error_code);
        showResult(data, first);
      }
    }
  } catch (error) {
    if (error.name === "AbortError") {
      at("result").textContent = `stopped after ${seconds(performance.now() - began)}`;
    } else {
      showError(error);
    }
  } finally {
    output.show(); // tabs that are not seen have no frames
    running = null;
    setRunning(false);
    showCurl();
  }
}

function input() {
  const asked = { max_tokens: Number(at("max_tokens").value) || 256 };
  const prompt = at("prompt").value;
  if (at("chat").checked) asked.messages = JSON.stringify([{ role: "user", content: prompt }]);
  else asked.prompt = prompt;
  for (const name of ["temperature", "seed"]) {
    if (at(name).value !== "") asked[name] = Number(at(name).value);
  }
  for (const name of ["system_prompt", "stop_sequences"]) {
    if (at(name).value !== "") asked[name] = at(name).value;
  }
  return asked;
}

function setRunning(isRunning) {
  at("run").disabled = isRunning;
  at("stop").disabled = !isRunning;
  at("output").classList.toggle("running", isRunning);
}

// The answer so far. What arrives between two frames is shown at once: laying out a text takes longer as it grows.
class Output {
  #text = new Text(); // none of it is read as HTML
  #arrived = "";

  constructor() {
    at("output").replaceChildren(this.#text);
  }

  add(chunk) {
    if (!this.#arrived) requestAnimationFrame(() => this.show());
    this.#arrived += chunk;
  }

  show() {
    if (!this.#arrived) return;
    const output = at("output");
    const wasAtEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 80;
    this.#text.appendData(this.#arrived);
    this.#arrived = "";
    if (wasAtEnd) output.scrollTop = output.scrollHeight;
  }
}

function showResult({ status, metrics }, first) {
  const count = metrics.output_token_count;
  const said = [status, `${count} token${count === 1 ? "" : "s"}`];
  if (first !== null) said.push(`first after ${seconds(first)}`);
  if (metrics.tokens_per_second !== undefined) said.push(`${Math.round(metrics.tokens_per_second)} tokens/s`);
  if (metrics.seed !== undefined) said.push(`seed ${metrics.seed}`);
  at("result").textContent = said.join(" · ");
}

function showError(error) {
  const code = error instanceof Failed ? error.code : "";
  // What browsers say of a connection differs, and tells nobody anything.
  const said = error instanceof TypeError ? "The runner is not responding, or the connection to it broke." : error.message;
  at("error-code").textContent = code;
  at("error-text").textContent = code ? said.replace(code, "").trim() : said;
  at("error").hidden = false;
}

function showCurl() {
  const body = JSON.stringify({ input: input() }).replaceAll("'", "'\\''");
  at("curl").textContent = [
    `curl -N ${new URL("predictions", document.baseURI)}`,
    "    -H 'Content-Type: application/json' -H 'Accept: text/event-stream'",
    ...(hasKey() ? ['    -H "Authorization: Bearer $API_KEY"'] : []),
    `    -d '${body}'`,
  ].join(" \\\n");
}

function seconds(milliseconds) {
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}
