// The tabs for masked words, pictures, embeddings and questions.

import { call } from "./api.js";
import { bars, byId, element, latest, say, timeOf } from "./page.js";
import * as request from "./request.js";

const CANDIDATES = 8;
const MASK = "[MASK]";
const TYPING_MILLISECONDS = 250;
const MOST_SENTENCES = 40;

function modelOf(task) {
  return byId(task).querySelector(".model").value;
}

/** Show a request for several inputs as commands. */
function showRequest(service, method, message, python) {
  request.show({ service, method, request: message, python });
}

export function startFill() {
  let masked = -1;
  const words = () => byId("fill-text").value.match(/\[MASK\]|[\p{L}\p{N}\p{M}]+|[^\s\p{L}\p{N}\p{M}]/gu) ?? [];

  const fill = latest(async (signal) => {
    const result = byId("fill-result");
    const text = masked < 0 ? byId("fill-text").value : replaced(byId("fill-text").value, masked, MASK);
    if (!text.includes(MASK)) return result.replaceChildren();
    const message = { contents: [text], model: modelOf("fill"), topK: CANDIDATES };
    showRequest("FillMaskService", "FillMask", message, `client.fill_mask(${request.python(text)})`);
    const began = performance.now();
    const found = await call("FillMaskService", "FillMask", message, signal);
    const rows = (found.results[0].masks ?? []).flatMap(({ candidates }) =>
      bars(candidates.map(({ tokenStr, score, sequence }) => ({ label: tokenStr, score: score ?? 0, action: () => use(sequence) }))),
    );
    result.replaceChildren(...rows, element("p", { class: "note" }, timeOf(found.timing, began)));
  });

  function use(sequence) {
    byId("fill-text").value = sequence;
    masked = -1;
    showChips();
    byId("fill-result").replaceChildren();
  }

  function mask(index) {
    masked = index;
    showChips();
    fill();
  }

  function showChips() {
    const chips = words().map((word, index) => {
      const chip = element("button", { type: "button", "aria-pressed": String(index === masked) }, index === masked ? MASK : word);
      chip.addEventListener("click", () => {
        mask(index === masked ? -1 : index);
        byId("fill-words").children[index].focus(); // the button was replaced
      });
      return chip;
    });
    byId("fill-words").replaceChildren(...chips);
  }

  function replaced(text, index, by) {
    let at = -1;
    return text.replace(/\[MASK\]|[\p{L}\p{N}\p{M}]+|[^\s\p{L}\p{N}\p{M}]/gu, (word) => (++at === index ? by : word));
  }

  byId("fill-text").addEventListener("input", () => {
    mask(-1);
  });
  return () => {
    if (masked < 0 && words().length > 1) mask(words().length - 2);
    else fill();
  };
}

export function startClassify() {
  const classify = async (file) => {
    try {
      byId("picture").src = URL.createObjectURL(file);
      byId("picture").hidden = false;
      const bytes = new Uint8Array(await file.arrayBuffer());
      let binary = "";
      for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
      const message = { images: [btoa(binary)], model: modelOf("classify"), topK: 5 };
      showRequest("ImageClassificationService", "ClassifyImage", message, `client.classify_image(${request.python(file.name)})`);
      const began = performance.now();
      const found = await call("ImageClassificationService", "ClassifyImage", message);
      const labels = found.results[0].labels.map(({ label, score }) => ({ label, score: score ?? 0 }));
      byId("classify-result").replaceChildren(...bars(labels), element("p", { class: "note" }, timeOf(found.timing, began)));
      say("");
    } catch (error) {
      say(error.message, true);
    }
  };
  byId("image").addEventListener("change", () => byId("image").files[0] && classify(byId("image").files[0]));
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
    if (file && !byId("classify").hidden) classify(file);
  });
  return () => {};
}

export function startEmbed() {
  return latest(async (signal) => {
    const sentences = byId("sentences").value.split("\n").map((line) => line.trim()).filter(Boolean).slice(0, MOST_SENTENCES);
    if (!sentences.length) return byId("embed-result").replaceChildren();
    const message = { contents: sentences, model: modelOf("embed"), normalize: true };
    showRequest("EmbeddingService", "EmbedText", message, `client.embed_many(${request.python(sentences)}, normalize=True)`);
    const began = performance.now();
    const found = await call("EmbeddingService", "EmbedText", message, signal);
    const vectors = found.embeddings.map((one) => one.values);
    const head = element("tr", {}, element("td"), ...sentences.map((_, index) => element("th", { scope: "col" }, String(index + 1))));
    const rows = sentences.map((sentence, index) => {
      const cells = vectors.map((other) => {
        const cosine = vectors[index].reduce((sum, value, place) => sum + value * other[place], 0);
        const cell = element("td", {}, cosine.toFixed(2));
        cell.style.setProperty("--strength", String(Math.max(0, cosine) ** 2 * 0.55));
        return cell;
      });
      return element("tr", {}, element("th", { scope: "row" }, `${index + 1}. ${sentence}`), ...cells);
    });
    const caption = element("caption", { class: "note" }, `Cosine similarity. ${timeOf(found.timing, began)}`);
    byId("embed-result").replaceChildren(element("table", {}, caption, head, ...rows));
  }, TYPING_MILLISECONDS);
}

export function startAnswer() {
  return latest(async (signal) => {
    const [question, context] = [byId("question").value, byId("context").value];
    if (!question.trim() || !context.trim()) return byId("answer-result").replaceChildren();
    const message = { inputs: [{ question, context }], model: modelOf("answer"), topK: 3 };
    showRequest("QuestionAnsweringService", "AnswerQuestion", message, `client.answer(${request.python(question)}, ${request.python(context)})`);
    const began = performance.now();
    const found = await call("QuestionAnsweringService", "AnswerQuestion", message, signal);
    const answers = (found.results[0].answers ?? []).map(({ text, score }) => ({ label: text ?? "", score: score ?? 0 }));
    byId("answer-result").replaceChildren(...bars(answers), element("p", { class: "note" }, timeOf(found.timing, began)));
  }, TYPING_MILLISECONDS);
}
