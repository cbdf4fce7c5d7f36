// Replays recorded exchanges of the provider through oav's live validator with the generated document. Usage: replay.mjs DIR
import { readdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import path from "node:path";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const { LiveValidator } = require("oav/dist/lib/liveValidation/liveValidator.js");
const here = path.dirname(fileURLToPath(import.meta.url));

const validator = new LiveValidator({
  directory: path.join(here, "out"), swaggerPathsPattern: ["flexnode/openapi.json"], git: { shouldClone: false }, isPathCaseSensitive: false,
  loadValidatorInBackground: false, loadValidatorInInitialize: true, isArmCall: true,
});
await validator.initialize();

// What is outside ARM's contract, though not wrong: answers that HTTP has and ARM's lists have not, and requests that are meant to be refused.
const refused = (e) => e.response.status >= 400;
// An agent may be newer than the provider, which ignores the members that it does not know.
const newer = (e, error) => error.code === "OBJECT_ADDITIONAL_PROPERTIES" && /\/(reportStatus|refreshCredentials|beginChange)\?/.test(e.request.url);
const skipped = (e) => e.response.status === 304 || e.response.status === 405;

// A validator that finds nothing is worth nothing: it must object to this.
let objected = false;
async function lie(e) {
  if (objected || e.response.status !== 200 || !e.response.body?.properties) return;
  const response = structuredClone(e.response);
  response.body.properties.surprise = true;
  const result = await validate({ request: e.request, response });
  if (result.responseValidationResult.errors.length === 0) throw new Error("the validator takes an answer with an unknown property");
  objected = true;
}

function validate(e) {
  const url = new URL(e.request.url, "https://provider.example");
  return validator.validateLiveRequestResponse({
    liveRequest: { method: e.request.method, url: url.pathname + url.search, headers: e.request.headers ?? {}, query: Object.fromEntries(url.searchParams), body: e.request.body },
    liveResponse: { statusCode: String(e.response.status), headers: e.response.headers ?? {}, body: e.response.body },
  });
}

const counts = { exchanges: 0, skipped: 0, unknown: 0, errors: 0 };
for (const name of (await readdir(process.argv[2])).sort()) {
  for (const line of (await readFile(path.join(process.argv[2], name), "utf8")).split("\n").filter(Boolean)) {
    const e = JSON.parse(line);
    counts.exchanges++;
    if (skipped(e)) { counts.skipped++; continue; }
    const result = await validate(e);
    const broken = result.requestValidationResult.runtimeException ?? result.responseValidationResult.runtimeException;
    if (broken) {
      // A path, method or version that the document does not have must have been refused. What Location points to is in no document:
      // it has the answers of whatever request an operation came of.
      if (refused(e) || /\/operationResults\//.test(e.request.url) || e.request.url.startsWith("/subscriptions/") && /api-version=(2\.0|20\d\d-\d\d-\d\d)(&|$)/.test(e.request.url)) { counts.unknown++; continue; }
      counts.errors++;
      console.error(`${e.request.method} ${e.request.url} -> ${e.response.status}: ${broken.code} ${broken.message}`);
      continue;
    }
    // The result of an operation is the answer to its POST, which may have secrets.
    const postponed = (error) => error.code === "SECRET_PROPERTY" && e.request.url.includes("/operationResults/");
    const errors = result.responseValidationResult.errors.filter((error) => !postponed(error));
    // What we refuse may be wrong; what we take may not, but for the location that az sends with every resource and that we ignore.
    const location = (error) => error.code === "OBJECT_ADDITIONAL_PROPERTIES" && /AZURECLI/.test(e.request.headers?.["user-agent"]) && String(error.pathsInPayload).includes("location");
    // What a GET has shown is put again as it is: read-only properties are ignored (RPC, PUT).
    const shown = (error) => error.code === "READONLY_PROPERTY_NOT_ALLOWED_IN_REQUEST" && e.request.method === "PUT";
    const ours = (error) => !location(error) && !shown(error);
    if (!refused(e)) errors.push(...result.requestValidationResult.errors.filter((x) => ours(x) && !newer(e, x)));
    if (errors.length === 0) await lie(e);
    for (const error of errors) {
      counts.errors++;
      console.error(`${e.request.method} ${e.request.url} -> ${e.response.status}: ${error.code} ${error.message} ${error.pathsInPayload ?? ""}`);
    }
  }
}
console.log(`oav: ${counts.exchanges} exchanges, ${counts.errors} errors (${counts.skipped} were 304 or 405, ${counts.unknown} outside the document)`);
process.exit(counts.errors || !objected ? 1 : 0);
