// Requests to the runner, with the API key if it needs one. The key lives only in this tab's sessionStorage.
const NAME = "cog-triton-key";
const dialog = document.getElementById("key-dialog");
const field = document.getElementById("key");
const refused = document.getElementById("key-refused");
let asking = null;

dialog.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  // Keys are printable ASCII; fetch() throws for much else, as if there were no connection.
  if (/[^ -~]/.test(field.value.trim())) refused.hidden = false;
  else dialog.close("use");
});
document.getElementById("key-leave").addEventListener("click", () => dialog.close());

export class KeyNeeded extends Error {}

export function hasKey() {
  return sessionStorage.getItem(NAME) !== null;
}

// As fetch(); asks for a key when one is needed. Throws KeyNeeded when none is given.
export async function request(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(NAME);
    const headers = { ...options.headers };
    if (key) headers.Authorization = `Bearer ${key}`;
    const answer = await fetch(path, { ...options, headers });
    if (answer.status !== 401) return answer;
    if (key !== sessionStorage.getItem(NAME)) continue; // another request has asked meanwhile
    sessionStorage.removeItem(NAME);
    asking ??= ask(key !== null).finally(() => (asking = null));
    await asking;
  }
}

function ask(wasRefused) {
  refused.hidden = !wasRefused;
  field.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve, reject) => {
    dialog.addEventListener(
      "close",
      () => {
        // Chromium returns the focus to the field that had it, but without a caret: what is typed would be
        // lost.
        const focused = document.activeElement;
        focused.blur();
        focused.focus();
        const key = field.value.trim();
        field.value = "";
        if (dialog.returnValue !== "use" || !key) {
          reject(new KeyNeeded("An API key is needed."));
          return;
        }
        sessionStorage.setItem(NAME, key);
        resolve();
      },
      { once: true },
    );
  });
}
