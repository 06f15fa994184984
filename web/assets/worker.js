/**
 * Runs jaxpar itself in the browser. A message {id, name, form} is answered by {id, answer, html};
 * {ready} says that Python is loaded, {failure} what went wrong with it.
 */

import { loadPyodide } from "./pyodide/pyodide.mjs";

const BUNDLE = "/bundle";
const PAGE = "answer_page.py";

async function file(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

async function load() {
  const [python, bundle, page] = await Promise.all([
    loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href }),
    file("jaxpar.zip"),
    file(PAGE),
  ]);
  python.unpackArchive(bundle, "zip", { extractDir: BUNDLE });
  python.FS.writeFile(`${BUNDLE}/${PAGE}`, new Uint8Array(page));
  return python.runPython(`
import sys
sys.path.insert(0, "${BUNDLE}")
from answer_page import answer_json
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
