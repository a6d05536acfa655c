// The tab that continues texts and answers chats.

import { stream } from "./api.js";
import { byId, latest, setBusy, timeOf } from "./page.js";
import * as request from "./request.js";

function options() {
  const temperature = Number(byId("temperature").value);
  return temperature !== 0 ? { samplingTemperature: temperature, samplingTopk: 0, samplingTopp: 0.95 } : { samplingTopk: 1 };
}

function sampling({ samplingTemperature }) {
  return samplingTemperature ? `sampling_temperature=${samplingTemperature}, sampling_topk=0, sampling_topp=0.95` : "sampling_topk=1";
}

async function generate(signal) {
  const text = byId("prompt").value;
  const isChat = byId("chat").checked;
  const given = isChat ? { messages: [{ role: "user", content: text }] } : { prompts: [text] };
  const most = byId("max-tokens").value;
  const maxTokens = most === "" ? undefined : Number(most); // the server's default
  const message = { ...given, model: byId("generate").querySelector(".model").value, maxTokens, options: options() };
  const prompt = isChat ? `[{"role": "user", "content": ${request.python(text)}}]` : request.python(text);
  const python = `client.generate(${prompt}, model=${request.python(message.model)}, max_tokens=${maxTokens ?? "None"}, ${sampling(message.options)}).text`;
  request.show({ tab: "generate", service: "TextGenerationService", method: "Generate", request: message, python });
  const result = byId("generated");
  const began = performance.now();
  let shown = isChat ? "" : text;
  result.textContent = shown;
  byId("generate-time").textContent = "";
  for await (const event of stream("TextGenerationService", "GenerateStream", message, signal)) {
    if (signal.aborted) return;
    if (event.piece) result.textContent = shown += event.piece.text ?? "";
    if (event.summary) byId("generate-time").textContent = timeOf(event.summary.timing, began);
  }
}

export function startGenerate() {
  let isRunning = false;
  const run = (isOn) => {
    isRunning = isOn;
    byId("generate-run").textContent = isOn ? "Stop" : "Generate";
    setBusy(byId("generated"), isOn);
  };
  const update = latest(async (signal) => {
    if (isRunning) return run(false); // this call has aborted it
    run(true);
    try {
      await generate(signal);
    } finally {
      if (!signal.aborted) run(false);
    }
  }, 0, byId("generated"));
  byId("generate-run").addEventListener("click", update);
  return () => {}; // on request alone: a generation takes long
}
