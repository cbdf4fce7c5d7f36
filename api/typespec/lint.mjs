// Runs Microsoft's ARM rules on the document. A finding fails, unless suppressions.json gives the reason why it stands.
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import path from "node:path";
import spectral from "@stoplight/spectral-core";
import parsers from "@stoplight/spectral-parsers";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const { spectralRulesets, deleteRulesPropertiesInPayloadNotValidForSpectralRules } = require("@microsoft.azure/openapi-validator-rulesets");
const here = path.dirname(fileURLToPath(import.meta.url));
const source = path.join(here, "out/flexnode/openapi.json");

const rules = spectralRulesets.azARM;
deleteRulesPropertiesInPayloadNotValidForSpectralRules(rules);
const { createHttpAndFileResolver } = require("@stoplight/spectral-ref-resolver");
const linter = new spectral.Spectral({ resolver: createHttpAndFileResolver() });
linter.setRuleset(rules);
const text = await readFile(source, "utf8");
const found = await linter.run(new spectral.Document(text, parsers.Json, source));
const suppressed = JSON.parse(await readFile(path.join(here, "suppressions.json"), "utf8"));
const used = new Set();
let bad = 0;
for (const f of found) {
  const at = f.path.join(".");
  const why = suppressed.findIndex((s) => s.rule === f.code && (s.at === undefined || at.includes(s.at)));
  if (why >= 0) { used.add(why); continue; }
  bad++;
  console.error(`${["error", "warning", "info", "hint"][f.severity]} ${f.code} at ${at}: ${f.message}`);
}
suppressed.forEach((s, i) => {
  if (!used.has(i)) { bad++; console.error(`the suppression of ${s.rule} ${s.at ?? ""} is not needed any more`); }
});
console.log(`${Object.keys(rules.rules).length} ARM rules, ${found.length} findings, ${found.length - bad} of them suppressed with a reason`);
process.exit(bad ? 1 : 0);
