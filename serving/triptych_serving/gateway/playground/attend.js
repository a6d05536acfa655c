// The attention of the request that the page made last, shown below it while that part is open.

import { call } from "./api.js";
import { showAttention } from "./attention.js";
import { byId } from "./page.js";

const PAUSE_MILLISECONDS = 400;
const MESSAGES = {
  Translate: ({ contents, sourceLanguageCode, targetLanguageCode }, target) => ({ text: contents[0], target, sourceLanguageCode, targetLanguageCode }),
  FillMask: ({ contents }) => ({ text: contents[0] }),
  EmbedText: ({ contents }) => ({ text: contents[0] }),
  AnswerQuestion: ({ inputs }) => ({ text: inputs[0].question, textPair: inputs[0].context }),
  ClassifyImage: ({ images }) => ({ image: images[0] }),
};

let last = null;
let viewer = null;
let controller = null;
let timer = 0;

async function load(signal) {
  const { method, request, target } = last;
  const views = byId("attention-views");
  try {
    const message = await call("AttentionService", "Attend", { ...MESSAGES[method](request, target), model: request.model }, signal);
    viewer = showAttention(views, message, method === "ClassifyImage" ? byId("picture").src : "", viewer);
  } catch (error) {
    if (!signal.aborted) views.replaceChildren(error.message);
  }
}

function update(pause) {
  controller?.abort();
  clearTimeout(timer);
  if (!byId("attention").open || !last || (last.method === "Translate" && last.target === undefined)) return; // not translated yet
  const { signal } = (controller = new AbortController());
  timer = setTimeout(() => load(signal), pause);
}

export function start() {
  document.addEventListener("request", ({ detail }) => {
    byId("attention").hidden = !(detail.method in MESSAGES);
    if (byId("attention").hidden) return;
    if (last?.method !== detail.method) byId("attention-views").replaceChildren();
    if (last?.method !== detail.method || last.request.model !== detail.request.model) viewer = null;
    last = detail;
    update(PAUSE_MILLISECONDS);
  });
  byId("attention").addEventListener("toggle", () => update(0));
}
