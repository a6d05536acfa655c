// The tabs for masked words, pictures, embeddings and questions.

import { call, parametersOf } from "./api.js";
import { bars, byId, element, latest, timeOf } from "./page.js";
import * as request from "./request.js";

const CANDIDATES = 8;
const TYPING_MILLISECONDS = 250;
const MOST_SENTENCES = 40;

function modelOf(task) {
  return byId(task).querySelector(".model").value;
}

/**
 * Show a request as commands and send it; returns the response, and its time as text.
 * `expression` is the Python client's call, but for the model.
 */
async function ask(tab, service, method, message, expression, signal) {
  request.show({ tab, service, method, request: message, python: `${expression}, model=${request.python(message.model)})` });
  const began = performance.now();
  const found = await call(service, method, message, signal);
  return [found, timeOf(found.timing, began)];
}

export function startFill() {
  const masks = {}; // by model: "[MASK]", or "<mask>"
  let mask = "[MASK]";
  let masked = -1;
  const pattern = () => new RegExp(`${mask.replace(/[[\]|]/g, "\\$&")}|[\\p{L}\\p{N}\\p{M}]+|[^\\s\\p{L}\\p{N}\\p{M}]`, "gu");
  const words = () => byId("fill-text").value.match(pattern()) ?? [];

  const fill = latest(async (signal) => {
    const result = byId("fill-result");
    const text = masked < 0 ? byId("fill-text").value : replaced(byId("fill-text").value, masked, mask);
    if (!text.includes(mask)) return result.replaceChildren();
    const message = { contents: [text], model: modelOf("fill"), topK: CANDIDATES };
    const [found, time] = await ask("fill", "FillMaskService", "FillMask", message, `client.fill_mask(${request.python(text)}`, signal);
    const rows = (found.results[0].masks ?? []).flatMap(({ candidates }) =>
      bars(candidates.map(({ tokenStr, score, sequence }) => ({ label: tokenStr, score: score ?? 0, action: () => use(sequence) }))),
    );
    result.replaceChildren(...rows, element("p", { class: "note" }, time));
  }, 0, byId("fill-result"));

  function use(sequence) {
    byId("fill-text").value = sequence;
    masked = -1;
    showChips();
    byId("fill-result").replaceChildren();
  }

  function hide(index) {
    masked = index;
    showChips();
    fill();
  }

  function showChips() {
    const chips = words().map((word, index) => {
      const chip = element("button", { type: "button", "aria-pressed": String(index === masked) }, index === masked ? mask : word);
      chip.addEventListener("click", () => {
        hide(index === masked ? -1 : index);
        byId("fill-words").children[index].focus(); // the button was replaced
      });
      return chip;
    });
    byId("fill-words").replaceChildren(...chips);
  }

  function replaced(text, index, by) {
    let at = -1;
    return text.replace(pattern(), (word) => (++at === index ? by : word));
  }

  byId("fill-text").addEventListener("input", () => {
    hide(-1);
  });
  return latest(async (signal) => {
    const model = modelOf("fill");
    masks[model] ??= (await parametersOf(model)).mask_token.string_value;
    if (signal.aborted) return;
    const others = Object.values(masks).filter((one) => one !== masks[model]);
    for (const one of others) byId("fill-text").value = byId("fill-text").value.replaceAll(one, masks[model]);
    mask = masks[model];
    hide(masked < 0 && words().length > 1 ? words().length - 2 : masked);
  });
}

export function startClassify(models) {
  let file = null;
  const classify = latest(async (signal) => {
    const { labels: known } = models.find((one) => one.name === modelOf("classify"));
    byId("classify-note").textContent = `The model knows ${known.length} kinds of things: ${known.slice(0, 20).join(", ")}.`;
    byId("classify-result").replaceChildren();
    if (!file) return;
    const bytes = new Uint8Array(await file.arrayBuffer());
    let binary = "";
    for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    const message = { images: [btoa(binary)], model: modelOf("classify"), topK: 5 };
    const [found, time] = await ask("classify", "ImageClassificationService", "ClassifyImage", message, `client.classify_image(${request.python(file.name)}`, signal);
    const labels = found.results[0].labels.map(({ label, score }) => ({ label, score: score ?? 0 }));
    byId("classify-result").replaceChildren(...bars(labels), element("p", { class: "note" }, time));
  });

  function use(chosen) {
    if (!chosen) return;
    file = chosen;
    URL.revokeObjectURL(byId("picture").src); // else the browser keeps every picture
    byId("picture").src = URL.createObjectURL(file);
    byId("picture").hidden = false;
    classify();
  }

  byId("image").addEventListener("change", () => use(byId("image").files[0]));
  document.addEventListener("paste", (event) => {
    if (!byId("classify").hidden) use([...event.clipboardData.files].find((one) => one.type.startsWith("image/")));
  });
  return classify;
}

export function startEmbed() {
  return latest(async (signal) => {
    const given = byId("sentences").value.split("\n").map((line) => line.trim()).filter(Boolean);
    const sentences = given.slice(0, MOST_SENTENCES);
    if (!sentences.length) return byId("embed-result").replaceChildren();
    const message = { contents: sentences, model: modelOf("embed"), normalize: true };
    const [found, time] = await ask("embed", "EmbeddingService", "EmbedText", message, `client.embed_many(${request.python(sentences)}, normalize=True`, signal);
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
    const part = given.length > sentences.length ? ` of the first ${sentences.length} sentences of ${given.length}` : "";
    const caption = element("caption", { class: "note" }, `Cosine similarity${part}. ${time}`);
    byId("embed-result").replaceChildren(element("table", {}, caption, head, ...rows));
  }, TYPING_MILLISECONDS, byId("embed-result"));
}

export function startAnswer() {
  return latest(async (signal) => {
    const [question, context] = [byId("question").value, byId("context").value];
    if (!question.trim() || !context.trim()) return byId("answer-result").replaceChildren();
    const message = { inputs: [{ question, context }], model: modelOf("answer"), topK: 3 };
    const [found, time] = await ask("answer", "QuestionAnsweringService", "AnswerQuestion", message, `client.answer(${request.python(question)}, ${request.python(context)}`, signal);
    const answers = (found.results[0].answers ?? []).map(({ text, score }) => ({ label: text ?? "", score: score ?? 0 }));
    byId("answer-result").replaceChildren(...bars(answers), element("p", { class: "note" }, time));
  }, TYPING_MILLISECONDS, byId("answer-result"));
}
