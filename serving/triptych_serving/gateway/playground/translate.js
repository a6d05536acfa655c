// The tab for translation: streamed while the user types, with alignment, uncertainty, alternatives and documents.

import { call, stream, translateFile } from "./api.js";
import { byId, element, latest, say, setBusy, timeOf } from "./page.js";
import * as request from "./request.js";

const TYPING_MILLISECONDS = 150;
const ALTERNATIVES = 4;
const WEAKEST_ALIGNMENT = 0.1; // of a source token, to be shown
const UNSURE = Math.log(0.5); // a token is shaded below this log-probability
const SCORED_CHARACTERS = 600;

let models = [];

function chosen() {
  const model = byId("translate").querySelector(".model").value;
  return {
    model,
    sourceLanguageCode: byId("source-language").value,
    targetLanguageCode: byId("target-language").value,
  };
}

function fillLanguages() {
  const model = models.find((one) => one.name === byId("translate").querySelector(".model").value) ?? models[0];
  for (const [id, codes] of [["source-language", model.sourceLanguageCodes], ["target-language", model.targetLanguageCodes]]) {
    const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
    const nameOf = (code) => {
      if (code === "und") return "any language"; // browsers say "root"
      try {
        return names.of(code.replaceAll("_", "-"));
      } catch {
        return code;
      }
    };
    byId(id).replaceChildren(...codes.map((code) => element("option", { value: code }, nameOf(code))));
  }
  if (byId("target-language").value === byId("source-language").value) {
    const other = [...byId("target-language").options].find((one) => one.value !== byId("source-language").value);
    if (other) other.selected = true;
  }
}

/** Split a text into words with their places; white space and punctuation stay between them. */
function wordsOf(text) {
  return [...text.matchAll(/[\p{L}\p{N}\p{M}]+(?:['’-][\p{L}\p{N}\p{M}]+)*|[^\s\p{L}\p{N}\p{M}]/gu)].map((match) => ({
    start: match.index,
    end: match.index + match[0].length,
  }));
}

/** Spans of the server count code points, JavaScript counts UTF-16 units. */
function unitsOf(text, spans) {
  const units = [0];
  for (const letter of text) units.push(units.at(-1) + letter.length);
  return spans.map((span) => ({ start: units[span.start ?? 0], end: units[span.end ?? 0] }));
}

const overlap = (one, other) => one.start < other.end && other.start < one.end;

/** Put the words of a text into an element, each in a span. */
function showWords(target, text, words) {
  const parts = [];
  let at = 0;
  for (const word of words) {
    parts.push(text.slice(at, word.start));
    word.element = element("span", { class: "word" }, text.slice(word.start, word.end));
    parts.push(word.element);
    at = word.end;
  }
  target.replaceChildren(...parts, text.slice(at), "\n");
}

/** Let each target word show its source words while it is pointed at or has the focus. */
function align(source, target, sourceTokens, targetTokens, rows) {
  for (const word of target) {
    const weights = new Map();
    targetTokens.forEach((token, index) => {
      if (!overlap(token, word)) return;
      (rows[index]?.sourceWeights ?? []).forEach((weight, place) => {
        for (const other of source) {
          if (sourceTokens[place] && overlap(sourceTokens[place], other)) weights.set(other, (weights.get(other) ?? 0) + weight);
        }
      });
    });
    const largest = Math.max(...weights.values(), 1e-9);
    const mark = (on) => {
      for (const [other, weight] of weights) {
        const visible = on && weight / largest >= WEAKEST_ALIGNMENT;
        other.element.classList.toggle("source", visible);
        other.element.style.setProperty("--strength", String(0.6 * (weight / largest)));
      }
    };
    word.element.tabIndex = 0;
    for (const name of ["pointerenter", "focus"]) word.element.addEventListener(name, () => mark(true));
    for (const name of ["pointerleave", "blur"]) word.element.addEventListener(name, () => mark(false));
  }
}

/** Shade the words of which the model is not sure. */
async function shade(text, translated, words, tokens, signal) {
  if (text.length > SCORED_CHARACTERS) return;
  const { model, ...languages } = chosen();
  const found = await call("TranslationService", "ScoreTranslations", { model, ...languages, pairs: [{ source: text, target: translated }] }, signal);
  const values = found.scores[0].tokenLogProbabilities ?? [];
  if (values.length !== tokens.length + 1) return; // the text is tokenized in another way than it was generated
  tokens.forEach((token, index) => {
    if (values[index] >= UNSURE) return;
    for (const word of words) {
      if (!overlap(token, word)) continue;
      word.element.classList.add("unsure");
      word.element.style.setProperty("--strength", String(Math.min(0.65, -values[index] / 8)));
      word.element.title = `probability ${(100 * Math.exp(values[index])).toFixed(0)} %`;
    }
  });
}

async function translate(signal) {
  if (byId("translate-text").hidden) return; // a file is chosen instead
  const text = byId("source").value;
  const target = byId("target");
  byId("count").textContent = `${[...text].length.toLocaleString("en")} characters`;
  byId("alternatives").querySelector("ol").replaceChildren();
  if (!text.trim()) {
    target.replaceChildren();
    byId("translate-time").textContent = "";
    setBusy(target, false); // the translation that this input ended left it
    return;
  }
  const message = { ...chosen(), contents: [text], options: { returnAlignment: true } };
  const [model, source, language] = [message.model, message.sourceLanguageCode, message.targetLanguageCode].map(request.python);
  const python = `client.translate(${request.python(text)}, model=${model}, source_language=${source}, target_language=${language}).text`;
  const made = { tab: "translate", service: "TranslationService", method: "Translate", request: { ...message, options: undefined }, python };
  request.show(made);
  const began = performance.now();
  setBusy(target, true);
  try {
    let shown = "";
    for await (const event of stream("TranslationService", "TranslateStream", message, signal)) {
      if (signal.aborted) return;
      if (event.piece) target.textContent = shown += event.piece.text ?? "";
      if (event.result) {
        finish(text, event.result.translation, signal);
        request.show({ ...made, target: event.result.translation.translatedText ?? "" });
      }
      if (event.summary) byId("translate-time").textContent = timeOf(event.summary.timing, began);
    }
  } catch (error) {
    if (!signal.aborted) {
      request.show({ ...made, target: "" });
      target.replaceChildren(); // it would be taken for the translation of this text
      byId("translate-time").textContent = "";
    }
    throw error;
  } finally {
    if (!signal.aborted) setBusy(target, false);
  }
  if (byId("alternatives").open) await showAlternatives(signal);
}

function finish(text, translation, signal) {
  const [best] = translation.hypotheses;
  const translated = translation.translatedText ?? "";
  const [source, target] = [wordsOf(text), wordsOf(translated)];
  showWords(byId("source-words"), text, source);
  showWords(byId("target"), translated, target);
  const tokens = unitsOf(translated, best.tokens ?? []);
  align(source, target, unitsOf(text, translation.sourceTokens ?? []), tokens, best.alignment ?? []);
  shade(text, translated, target, tokens, signal).catch(() => {}); // a decoration: the translation itself is there
}

async function showAlternatives(signal) {
  const text = byId("source").value;
  if (!text.trim()) return;
  const options = { beamSize: ALTERNATIVES, numHypotheses: ALTERNATIVES, returnScores: true };
  const found = await call("TranslationService", "Translate", { ...chosen(), contents: [text], options }, signal);
  const items = found.translations[0].hypotheses.map((one) => element("li", {}, one.text ?? ""));
  byId("alternatives").querySelector("ol").replaceChildren(...items);
}

async function translateDocument(file) {
  const result = byId("file-result");
  const isChosen = () => byId("file").files[0] === file; // no other one was chosen meanwhile
  const before = result.querySelector("a");
  if (before) URL.revokeObjectURL(before.href); // else the browser keeps every translation
  result.textContent = `Translating ${file.name}…`;
  say("");
  try {
    const { model, sourceLanguageCode, targetLanguageCode } = chosen();
    const content = await translateFile(file, model, sourceLanguageCode, targetLanguageCode);
    if (!isChosen()) return;
    const name = file.name.replace(/(\.[^.]*)?$/, (suffix) => `_${targetLanguageCode}${suffix}`);
    const link = element("a", { href: URL.createObjectURL(content), download: name }, name);
    result.replaceChildren("Translated: ", link);
  } catch (error) {
    if (!isChosen()) return;
    result.textContent = "";
    say(error.message, true);
  }
}

export function start(found) {
  models = found;
  const update = latest(translate, TYPING_MILLISECONDS);
  byId("translate").querySelector(".model").addEventListener("change", () => {
    fillLanguages();
    update();
  });
  fillLanguages();
  for (const id of ["source-language", "target-language"]) byId(id).addEventListener("change", update);
  const mirror = () => byId("source-words").replaceChildren(byId("source").value, "\n"); // gives the field its height
  byId("source").addEventListener("input", () => {
    mirror();
    update();
  });
  mirror();
  const again = latest(showAlternatives);
  byId("alternatives").addEventListener("toggle", () => byId("alternatives").open && again());
  byId("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(byId("target").textContent.trimEnd());
      say("The translation was copied.");
    } catch { // browsers let pages copy over HTTPS or from localhost only
      getSelection().selectAllChildren(byId("target"));
      say("The browser does not let this page copy: the translation is selected, press Ctrl+C.");
    }
  });
  for (const input of document.querySelectorAll("input[name=input]")) {
    input.addEventListener("change", () => {
      const isFile = input.value === "file";
      byId("translate-text").hidden = isFile;
      byId("translate-file").hidden = !isFile;
      update(); // or ends the translation of the text
      if (isFile) for (const id of ["request", "attention"]) byId(id).hidden = true; // they are about the text
    });
  }
  byId("file").addEventListener("change", () => byId("file").files[0] && translateDocument(byId("file").files[0]));
  return update;
}
