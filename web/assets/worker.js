/**
 * Runs jaxpar itself in the browser. A message {id, name, form} is answered by {id, answer, html};
 * {ready} says that Python is loaded, {failure} what went wrong with it.
 */

import { loadPyodide } from "./pyodide/pyodide.mjs";

const BUNDLE = "/bundle";

async function file(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

async function load() {
  const [python, bundle] = await Promise.all([
    loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href }),
    file("jaxpar.zip"),
  ]);
  python.unpackArchive(bundle, "zip", { extractDir: BUNDLE });
  return python.runPython(`
import sys
sys.path.insert(0, "${BUNDLE}")
from jaxpar.explore.html import answer_json
answer_json
`);
}

const loaded = load();
loaded.then(
  () => postMessage({ ready: true }),
  (error) => postMessage({ failure: error.message }),
);

addEventListener("message", async ({ data: { id, name, form } }) => {
  const answerJson = await loaded;
  try {
    postMessage({ id, ...JSON.parse(answerJson(name, JSON.stringify(form))) });
  } catch (error) {
    postMessage({ failure: error.message.trim().split("\n").at(-1) });
  }
});
