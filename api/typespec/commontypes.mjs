// Writes ARM's common types, which the emitted document refers to, from the library that defines them.
import { NodeHost, compile } from "@typespec/compiler";
import { getAllServicesAtAllVersions } from "@azure-tools/typespec-autorest";
import { mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import path from "node:path";

const here = path.dirname(fileURLToPath(import.meta.url));
const library = path.join(here, "commontypes.tsp");

// The library says what these are in a form that cannot be emitted by itself (common-types/v6, parameters).
const parameters = {
  ApiVersionParameter: { name: "api-version", in: "query", required: true, type: "string", description: "The API version to use for this operation.", minLength: 1 },
  SubscriptionIdParameter: { name: "subscriptionId", in: "path", required: true, type: "string", format: "uuid", description: "The ID of the target subscription. The value must be an UUID." },
  ResourceGroupNameParameter: {
    name: "resourceGroupName", in: "path", required: true, type: "string", description: "The name of the resource group. The name is case insensitive.",
    minLength: 1, maxLength: 90, "x-ms-parameter-location": "method",
  },
  OperationIdParameter: { name: "operationId", in: "path", required: true, type: "string", description: "The ID of an ongoing async operation.", minLength: 1, "x-ms-parameter-location": "method" },
  LocationParameter: { name: "location", in: "path", required: true, type: "string", description: "The name of the Azure region.", minLength: 1, "x-ms-parameter-location": "method" },
};

export async function writeCommonTypes(into) {
  const program = await compile(NodeHost, library, { noEmit: true });
  const services = await getAllServicesAtAllVersions(program, {
    outputDir: into, outputFile: "types.json", azureResourceProviderFolder: undefined, versionEnumStrategy: "include",
    emitLroOptions: "none", emitCommonTypesSchema: "never", omitUnreachableTypes: false, armTypesDir: into, useReadOnlyStatusSchema: false,
  });
  for (const service of services) {
    for (const version of service.versioned ? service.versions : [service]) {
      version.document.parameters = parameters;
      version.document.definitions.Resource["x-ms-azure-resource"] = true;
      const dir = path.join(into, version.version ?? "v6");
      await mkdir(dir, { recursive: true });
      await writeFile(path.join(dir, "types.json"), JSON.stringify(version.document, null, 2));
    }
  }
}
