// The request that the page made last, as commands for other programs.

import { hasKey } from "./api.js";
import { element } from "./page.js";

const KINDS = { curl: asCurl, Python: asPython, grpcurl: asGrpcurl };
let shown = "curl";
let last = null;
let port = 8001; // for gRPC

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function shortened(value) {
  return JSON.stringify(value, (_, one) => (typeof one === "string" && one.length > 2000 ? `${one.slice(0, 40)}...` : one));
}

/** The header with the key, which is never shown: the Python client takes it from the same variable. */
function keyHeader() {
  return hasKey() ? ' -H "authorization: Bearer $TRIPTYCH_API_KEY"' : "";
}

const isSecure = location.protocol === "https:";

function asCurl({ service, method, request }) {
  const url = new URL(`triptych.v1.${service}/${method}`, location.href);
  return `curl ${url} -H 'content-type: application/json'${keyHeader()} \\\n  -d ${quoted(shortened(request))}`;
}

function asGrpcurl({ service, method, request }) {
  return `grpcurl${isSecure ? "" : " -plaintext"}${keyHeader()} -d ${quoted(shortened(request))} \\\n  ${location.hostname}:${port} triptych.v1.${service}/${method}`;
}

function asPython({ python }) {
  return `from triptych_client import Client\n\nwith Client("${isSecure ? "https://" : ""}${location.hostname}:${port}") as client:\n    print(${python})`;
}

/** Show a request: tab, service, method, message, and the expression of the Python client; that of another tab is not shown. */
export function show(request) {
  if (document.getElementById(request.tab).hidden) return;
  last = request;
  document.getElementById("request").hidden = false;
  document.dispatchEvent(new CustomEvent("request", { detail: request }));
  document.getElementById("request-code").textContent = KINDS[shown](request);
}

/** Write a value as Python does. */
export function python(value) {
  return JSON.stringify(value);
}

export function start() {
  fetch("playground/settings.json").then((response) => response.json()).then((settings) => (port = settings.grpcPort));
  const kinds = document.getElementById("request-kinds");
  for (const name of Object.keys(KINDS)) {
    const button = element("button", { type: "button", "aria-pressed": String(name === shown) }, name);
    button.addEventListener("click", () => {
      shown = name;
      for (const other of kinds.children) other.setAttribute("aria-pressed", String(other === button));
      if (last) document.getElementById("request-code").textContent = KINDS[shown](last);
    });
    kinds.append(button);
  }
}
