// The page of one model. The packages lie in node_modules: run `npm install` in this folder once.

import { open } from "./model.js";

const byId = (id) => document.getElementById(id);
const TYPING_MILLISECONDS = 300;
const EXAMPLES = { translation: "The old bridge was rebuilt three years later.", "fill-mask": "The war ended in the [MASK] century." };

async function read(name) {
  const response = await fetch(`model/${name}`).catch((error) => Promise.reject(new Error(`model/${name}: ${error.message}`)));
  if (!response.ok) throw new Error(`model/${name}: ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

const lines = (ranked) => ranked.map(({ label, score }) => `${(100 * score).toFixed(1).padStart(4, "\u2007")} %  ${label}`).join("\n");

/** Scale a picture as the model was trained: to a fixed size, or the middle of it. */
async function pixelsOf(file, { width, height, shortest_edge: edge }) {
  const bitmap = await createImageBitmap(file);
  const scale = edge ? edge / Math.min(bitmap.width, bitmap.height) : 0;
  const [w, h] = edge ? [width / scale, height / scale] : [bitmap.width, bitmap.height];
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.imageSmoothingQuality = "high";
  canvas.drawImage(bitmap, (bitmap.width - w) / 2, (bitmap.height - h) / 2, w, h, 0, 0, width, height);
  return Uint8Array.from(canvas.getImageData(0, 0, width, height).data.filter((_, index) => index % 4 < 3));
}

/** Show a result, or the error. */
async function show(work) {
  const began = performance.now();
  try {
    byId("result").textContent = await work();
    byId("status").textContent = byId("result").textContent && `${Math.round(performance.now() - began)} ms`;
  } catch (error) {
    byId("result").textContent = ""; // it would be taken for the result of this input
    byId("status").textContent = error.message;
  }
}

function start({ settings, run }) {
  document.querySelector("main").hidden = false;
  document.title = byId("title").textContent = settings.name;
  if (settings.task === "image-classification") {
    byId("text-label").hidden = true;
    byId("image-label").hidden = false;
    byId("image").addEventListener("change", () => {
      const [file] = byId("image").files;
      if (!file) return;
      URL.revokeObjectURL(byId("picture").src); // else the browser keeps every picture
      byId("picture").src = URL.createObjectURL(file);
      byId("picture").hidden = false;
      show(async () => lines(await run(await pixelsOf(file, settings))));
    });
    byId("status").textContent = "Ready";
    return;
  }
  let controller = new AbortController();
  let timer = 0;
  let last = Promise.resolve(); // a session runs one input at a time
  const update = () => {
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    clearTimeout(timer);
    timer = setTimeout(() => {
      last = last.then(() => signal.aborted || show(async () => {
        const text = byId("text").value;
        if (!text.trim()) return "";
        if (settings.task === "fill-mask") return (await run(text)).map(lines).join("\n\n");
        return run(text, (part) => signal.aborted || (byId("result").textContent = part), signal);
      }));
    }, TYPING_MILLISECONDS);
  };
  byId("text").value = EXAMPLES[settings.task].replace("[MASK]", settings.mask_token);
  byId("text").addEventListener("input", update);
  update();
}

const missing = (error) => Promise.reject(new Error(`${error.message}. Run npm install in the folder of this page.`));

try {
  const ort = await import("./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs").catch(missing);
  const { Tokenizer } = await import("./node_modules/@huggingface/tokenizers/dist/tokenizers.min.mjs").catch(missing);
  ort.env.wasm.numThreads = 1; // more need headers that plain file servers do not send
  start(await open(ort, Tokenizer, read));
} catch (error) {
  byId("status").textContent = error.message;
}
