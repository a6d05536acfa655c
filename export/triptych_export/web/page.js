// The page of one model. The packages lie in node_modules: run `npm install` in this folder once.

import { fitted, open } from "./model.js";

const byId = (id) => document.getElementById(id);
const TYPING_MILLISECONDS = 300;
const TILE = 2048; // pixels; the least that WebGL has to read at once
const EXAMPLES = { translation: "The old bridge was rebuilt three years later.", "fill-mask": "The war ended in the [MASK] century." };

async function read(name) {
  const response = await fetch(`model/${name}`).catch((error) => Promise.reject(new Error(`model/${name}: ${error.message}`)));
  if (!response.ok) throw new Error(`model/${name}: ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

const lines = (ranked) => ranked.map(({ label, score }) => `${(100 * score).toFixed(1).padStart(4, "\u2007")} %  ${label}`).join("\n");

/** The pixels of a picture file as they are stored: a canvas would blend transparent ones with black. */
async function pictureOf(file) {
  const whole = { premultiplyAlpha: "none", colorSpaceConversion: "none" };
  const bitmap = await createImageBitmap(file, whole);
  const { width, height } = bitmap;
  const pixels = new Uint8Array(4 * width * height);
  const read = reader();
  for (let top = 0; top < height; top += TILE) {
    for (let left = 0; left < width; left += TILE) {
      const [columns, rows] = [Math.min(TILE, width - left), Math.min(TILE, height - top)];
      const tile = read(await createImageBitmap(bitmap, left, top, columns, rows, whole));
      for (let row = 0; row < rows; row++) {
        pixels.set(tile.subarray(4 * row * columns, 4 * (row + 1) * columns), 4 * ((top + row) * width + left));
      }
    }
  }
  return { width, height, pixels };
}

/** A function that reads the pixels of a bitmap: with WebGL, else with a canvas. */
function reader() {
  const gl = new OffscreenCanvas(1, 1).getContext("webgl");
  if (!gl) {
    return (bitmap) => {
      const canvas = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
      canvas.drawImage(bitmap, 0, 0);
      return canvas.getImageData(0, 0, bitmap.width, bitmap.height).data;
    };
  }
  const texture = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  return (bitmap) => {
    const pixels = new Uint8Array(4 * bitmap.width * bitmap.height);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, bitmap);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
    gl.readPixels(0, 0, bitmap.width, bitmap.height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
    return pixels;
  };
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
  let last = Promise.resolve(); // a session runs one input at a time
  if (settings.task === "image-classification") {
    byId("text-label").hidden = true;
    byId("image-label").hidden = false;
    byId("image").addEventListener("change", () => {
      const [file] = byId("image").files;
      if (!file) return;
      URL.revokeObjectURL(byId("picture").src); // else the browser keeps every picture
      byId("picture").src = URL.createObjectURL(file);
      byId("picture").hidden = false;
      last = last.then(() => show(async () => lines(await run(fitted(await pictureOf(file), settings)))));
    });
    byId("status").textContent = "Ready";
    return;
  }
  let controller = new AbortController();
  let timer = 0;
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
