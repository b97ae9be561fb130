// One prediction over Cog's API, as it arrives.
import { request } from "./key.js";

// An error from the runner; `code` is E1001 or the like, or empty.
export class Failed extends Error {
  constructor(text, code) {
    super(text);
    this.code = code ?? "";
  }
}

// Yields {kind, data} for each event. Throws Failed when it is refused or cut off.
export async function* predict(input, signal) {
  const answer = await request("predictions", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({ input }),
    signal,
  });
  if (!answer.ok) throw await refusal(answer);
  let ended = false;
  for await (const event of events(answer.body)) {
    ended ||= event.kind === "completed";
    yield event;
  }
  if (!ended) throw new Failed("The connection ended before the answer did.");
}

async function refusal(answer) {
  try {
    const { error, error_code } = await answer.json();
    return new Failed(error ?? `HTTP ${answer.status}`, error_code);
  } catch {
    return new Failed(`HTTP ${answer.status} ${answer.statusText}`);
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [first, second] = block.split("\n");
      yield { kind: first.replace("event: ", ""), data: JSON.parse(second.replace("data: ", "")) };
    }
  }
}
