// The page: tabs for the tasks of the loaded models.

import { call, hasKey, useKey } from "./api.js";
import { start as startAttention } from "./attend.js";
import { startAnswer, startClassify, startEmbed, startFill } from "./encoders.js";
import { startGenerate } from "./generate.js";
import { byId, element, say } from "./page.js";
import * as request from "./request.js";
import { start as startTranslate } from "./translate.js";

const TASKS = {
  translate: { title: "Translate", service: "triptych.v1.TranslationService", start: startTranslate, inputs: [] },
  generate: { title: "Generate", service: "triptych.v1.TextGenerationService", start: startGenerate, inputs: [] },
  fill: { title: "Fill in", service: "triptych.v1.FillMaskService", start: startFill, inputs: [] },
  classify: { title: "Classify", service: "triptych.v1.ImageClassificationService", start: startClassify, inputs: [] },
  embed: { title: "Compare", service: "triptych.v1.EmbeddingService", start: startEmbed, inputs: ["sentences"] },
  answer: { title: "Answer", service: "triptych.v1.QuestionAnsweringService", start: startAnswer, inputs: ["question", "context"] },
};
const DROPPED = { translate: "file", classify: "image" };

function select(name, updates) {
  for (const button of byId("tabs").children) {
    const isChosen = button.dataset.task === name;
    button.setAttribute("aria-selected", String(isChosen));
    button.tabIndex = isChosen ? 0 : -1;
    byId(button.dataset.task).hidden = !isChosen;
  }
  byId("request").hidden = true;
  byId("attention").hidden = true;
  say("");
  history.replaceState(null, "", `#${name}`);
  updates[name]();
}

function moveBetweenTabs(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const buttons = [...byId("tabs").children];
  const next = buttons[(buttons.indexOf(event.target) + step + buttons.length) % buttons.length];
  next.focus();
  next.click();
}

function acceptDrops(section, input) {
  const drop = section.querySelector(".drop");
  for (const name of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragover");
      if (name === "drop" && event.dataTransfer.files.length) {
        byId(input).files = event.dataTransfer.files;
        byId(input).dispatchEvent(new Event("change"));
      }
    });
  }
}

function show(models) {
  const updates = {};
  for (const [name, task] of Object.entries(TASKS)) {
    const own = models.filter((model) => model.services?.includes(task.service) && (name !== "translate" || model.task === "translation"));
    if (!own.length) continue;
    const choice = byId(name).querySelector(".model");
    choice.replaceChildren(...own.map((model) => element("option", { value: model.name }, model.name)));
    const update = (updates[name] = task.start(own));
    if (name !== "translate") choice.addEventListener("change", update);
    for (const id of task.inputs) byId(id).addEventListener("input", update);
    if (name in DROPPED) acceptDrops(byId(name), DROPPED[name]);
    const button = element("button", { type: "button", role: "tab", "aria-controls": name, "data-task": name }, task.title);
    byId(name).setAttribute("aria-label", task.title);
    button.addEventListener("click", () => select(name, updates));
    byId("tabs").append(button);
  }
  const names = Object.keys(updates);
  if (!names.length) return say("No model is loaded that this page can show.", true);
  const wanted = location.hash.slice(1);
  select(names.includes(wanted) ? wanted : names[0], updates);
}

async function load() {
  try {
    const { models = [] } = await call("ModelService", "ListModels", {});
    const ready = models.filter((model) => model.state === "MODEL_STATE_READY" && model.defaultVersion);
    if (byId("tabs").children.length) return; // Enter was pressed twice
    document.querySelector(".key").hidden = !hasKey(); // it may expire
    show(ready);
  } catch (error) {
    const isKeyMissing = error.code === "unauthenticated" && !hasKey();
    say(isKeyMissing ? "The server needs an API key: type it above and press Enter." : error.message, true);
    if (error.code === "unauthenticated") document.querySelector(".key").hidden = false;
    if (error.code === "unavailable") setTimeout(load, 1000);
  }
}

byId("tabs").addEventListener("keydown", moveBetweenTabs);
document.querySelector(".key").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value);
  const chosen = byId("tabs").querySelector("[aria-selected=true]");
  if (chosen) chosen.click(); // asks again
  else load();
});
addEventListener("hashchange", () => byId("tabs").querySelector(`[data-task="${CSS.escape(location.hash.slice(1))}"]`)?.click());
request.start();
startAttention();
load();
