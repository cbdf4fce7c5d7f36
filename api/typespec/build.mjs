// Compiles main.tsp and writes docs/api/openapi.json, one document that refers to nothing outside itself. With --check it writes nothing
// and fails if the document is not what is there.
import { execFileSync } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import path from "node:path";
import { writeCommonTypes } from "./commontypes.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const target = path.join(here, "../../docs/api/openapi.json");
await rm(path.join(here, "out"), { recursive: true, force: true });
execFileSync(process.execPath, [path.join(here, "node_modules/@typespec/compiler/cmd/tsp.js"), "compile", ".", "--warn-as-error"], { cwd: here, stdio: "inherit" });
await writeCommonTypes(path.join(here, "out/common-types/resource-management"));

const document = JSON.parse(await readFile(path.join(here, "out/flexnode/openapi.json"), "utf8"));
const common = JSON.parse(await readFile(path.join(here, "out/common-types/resource-management/v6/types.json"), "utf8"));

// inline puts what a reference to the common types means into the document itself.
function inline(node) {
  if (Array.isArray(node)) return node.forEach(inline);
  if (node === null || typeof node !== "object") return;
  for (const [key, value] of Object.entries(node)) {
    if (key !== "$ref" || typeof value !== "string") { inline(value); continue; }
    const [, section, name] = value.split("#")[1].split("/");
    node.$ref = `#/${section}/${name}`;
    document[section] ??= {};
    if (!document[section][name]) {
      document[section][name] = structuredClone(common[section][name]);
      if (!document[section][name]) throw new Error(`the common types have no ${section}/${name}`);
      inline(document[section][name]);
    }
  }
}
inline(document.paths);
inline(document.definitions);
inline(document.parameters ?? {});
const text = JSON.stringify(document, null, 2) + "\n";
if (!process.argv.includes("--check")) {
  await writeFile(target, text);
} else if (await readFile(target, "utf8") !== text) {
  console.error("docs/api/openapi.json is not what api/typespec yields: run make openapi");
  process.exit(1);
}
