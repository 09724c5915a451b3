// Validates each HTTPRoute of a JSON file by the schema of the Gateway API; fails with what is wrong.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const schemas = "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute.js";
const { HTTPRoute } = await import(pathToFileURL(join(process.env.NODE_PATH, schemas)));
const documents = JSON.parse(readFileSync(process.argv[2], "utf8"));
for (const document of documents) new HTTPRoute(document).validate();
console.log(documents.length);
