import * as ask from "./ask.js";
import { watch } from "./watch.js";

ask.start();
watch();
nameModel();

// Only what needs no key: a title is not worth asking for one.
async function nameModel() {
  const answer = await fetch("v1/models");
  if (!answer.ok) return;
  const { data } = await answer.json();
  const name = data[0]?.id;
  if (!name) return;
  document.getElementById("model").textContent = name;
  document.title = `${name} · cog-triton`;
}
