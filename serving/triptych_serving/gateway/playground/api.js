// Calls of the gateway: the Connect protocol (https://connectrpc.com/docs/protocol) with JSON.

const END = 2;
const FETCHED_BYTES = 5; // flags and length of a message of a stream

export class CallError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

let key = "";

export function useKey(value) {
  key = value.trim().replace(/[^\x21-\x7e]/g, "?"); // a header takes no other characters, and no key has them
}

export function hasKey() {
  return key !== "";
}

function headers(type) {
  return { "content-type": type, ...(key && { authorization: `Bearer ${key}` }) };
}

async function failed(response) {
  const error = await response.json().catch(() => ({}));
  return new CallError(error.code ?? String(response.status), error.message ?? error.error ?? response.statusText);
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (options?.signal?.aborted) throw error;
    throw new CallError("unavailable", "The server does not answer. Is it still running?");
  }
}

/** Call a method with one response; `signal` aborts it. */
export async function call(service, method, request, signal) {
  const options = { method: "POST", headers: headers("application/json"), body: JSON.stringify(request), signal };
  const response = await send(`triptych.v1.${service}/${method}`, options);
  if (!response.ok) throw await failed(response);
  return response.json();
}

/** Call a method with a stream of responses, and yield each as it arrives. */
export async function* stream(service, method, request, signal) {
  const message = new TextEncoder().encode(JSON.stringify(request));
  const body = new Uint8Array(FETCHED_BYTES + message.length);
  new DataView(body.buffer).setUint32(1, message.length);
  body.set(message, FETCHED_BYTES);
  const options = { method: "POST", headers: headers("application/connect+json"), body, signal };
  const response = await send(`triptych.v1.${service}/${method}`, options);
  if (!response.ok) throw await failed(response);
  const reader = response.body.getReader();
  let received = new Uint8Array();
  for (;;) {
    while (received.length >= FETCHED_BYTES) {
      const length = new DataView(received.buffer, received.byteOffset).getUint32(1);
      if (received.length < FETCHED_BYTES + length) break;
      const value = JSON.parse(new TextDecoder().decode(received.subarray(FETCHED_BYTES, FETCHED_BYTES + length)));
      if (received[0] === END) {
        if (value.error) throw new CallError(value.error.code, value.error.message);
        return;
      }
      yield value;
      received = received.slice(FETCHED_BYTES + length);
    }
    const { value, done } = await reader.read().catch(() => ({ done: true })); // it broke
    if (done) throw new CallError("unavailable", "the connection was closed");
    const joined = new Uint8Array(received.length + value.length);
    joined.set(received);
    joined.set(value, received.length);
    received = joined;
  }
}

/** The parameters of a model's configuration in the Open Inference Protocol. */
export async function parametersOf(model) {
  const response = await send(`v2/models/${encodeURIComponent(model)}/config`, { headers: headers("application/json") });
  if (!response.ok) throw await failed(response);
  return (await response.json()).parameters;
}

/** Translate a document; returns the content of the result. */
export async function translateFile(file, model, source, target) {
  const form = new FormData();
  form.append("model", model);
  form.append("source", source);
  form.append("target", target);
  if (key) form.append("api_key", key);
  form.append("file", file);
  const response = await send("translate_file", { method: "POST", body: form });
  if (!response.ok) throw await failed(response);
  const path = new URL((await response.json()).translatedFileUrl).pathname.replace(/^.*\/download_file/, "download_file");
  const content = await send(path);
  if (!content.ok) throw await failed(content);
  return content.blob();
}
