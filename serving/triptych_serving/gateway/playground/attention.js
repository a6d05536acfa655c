// Views of attention weights, in the form of AttendResponse as JSON, or with weights as nested lists, as `triptych attend --json`
// prints them. Imports nothing: `triptych attend --html` copies this file.

const SVG = "http://www.w3.org/2000/svg";
const WEAKEST_LINE = 0.04;
const [LARGEST_CELL, SMALLEST_CELL, MAP_WIDTH] = [24, 7, 900]; // pixels
const LINE_HEIGHT = 24;
const SHADE = 0.85; // of the patch with the least attention
const [POSITIONS, DIMENSIONS] = [64, 128]; // of the matrix of sinusoids
const KINDS = { cross: "Translation to text", decoder: "Translation to itself", encoder: "Text to itself" };
const VIEWS = { map: "Heat map", lines: "Lines", grid: "All heads", positions: "Positions" };
const IMAGE_VIEWS = { rollout: "Rollout", head: "One head", grid: "All heads" };
const NOTES = {
  map: "Rows attend to columns; a stronger colour is more. Point at a cell to see its weight.",
  lines: "Words on the left attend to words on the right, each head in its colour. Point at a word to see its lines alone.",
  grid: "A row for each layer, a column for each head. Choose one to enlarge it.",
  positions: "Sinusoids that the original Transformer adds to its tokens (Vaswani et al. 2017), where others learn vectors: a row for each position, a column for each dimension.",
  rollout: "Attention of all layers multiplied, the residual connections included as identity (Abnar and Zuidema 2020), from the class token to the patches: bright ones count most.",
  head: "Attention of the class token to the patches: bright ones get most.",
};

function make(name, attributes = {}, ...children) {
  const made = ["svg", "line", "text"].includes(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Weights of a message or of nested lists, with the values as floats. */
function read(message) {
  if (Array.isArray(message)) {
    const [layers, heads, targets, sources] = [message, message[0], message[0][0], message[0][0][0]].map((list) => list.length);
    return { layers, heads, targets, sources, values: Float32Array.from(message.flat(3)) };
  }
  const bytes = Uint8Array.from(atob(message.values), (letter) => letter.charCodeAt(0));
  return { ...message, values: new Float32Array(bytes.buffer) };
}

/** The mean of some heads of a layer, `{ rows, columns, values }`. */
function mean({ heads, targets, sources, values }, layer, chosen) {
  const size = targets * sources;
  const sum = new Float32Array(size);
  for (const head of chosen) {
    const start = (layer * heads + head) * size;
    for (let i = 0; i < size; i++) sum[i] += values[start + i] / chosen.length;
  }
  return { rows: targets, columns: sources, values: sum };
}

const all = (count) => Array.from({ length: count }, (_, index) => index);

/** Product of the layers' mean attention, each averaged with the identity; `[positions, positions]`. */
function rollout(weights) {
  const size = weights.sources;
  let product = Float32Array.from({ length: size * size }, (_, i) => Number(Math.floor(i / size) === i % size));
  for (let layer = 0; layer < weights.layers; layer++) {
    const { values } = mean(weights, layer, all(weights.heads));
    const next = new Float32Array(size * size);
    for (let row = 0; row < size; row++) {
      for (let middle = 0; middle < size; middle++) {
        const share = (values[row * size + middle] + Number(row === middle)) / 2;
        for (let column = 0; column < size; column++) next[row * size + column] += share * product[middle * size + column];
      }
    }
    product = next;
  }
  return { rows: size, columns: size, values: product };
}

/** What the class token, the first position, attends to: the patches are the last positions. */
function overPatches(matrix, rows, columns) {
  return { rows, columns, values: matrix.values.slice(matrix.columns - rows * columns, matrix.columns) };
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(Number);
}

/** A canvas with a pixel for each value; the largest is opaque. Negative values have another colour. */
function picture({ rows, columns, values }, label, ink = colour("--warm"), opacity = 1) {
  const canvas = make("canvas", { width: columns, height: rows, role: "img", "aria-label": label, class: "attention-map" });
  const context = canvas.getContext("2d");
  const data = context.createImageData(columns, rows);
  const other = colour("--unsure");
  let largest = 1e-9;
  for (const value of values) largest = Math.max(largest, Math.abs(value));
  values.forEach((value, i) => data.data.set([...(value < 0 ? other : ink), (opacity * 255 * Math.abs(value)) / largest], 4 * i));
  context.putImageData(data, 0, 0);
  return canvas;
}

/** A heat map with the tokens beside and above it. */
function heatMap(matrix, targets, sources) {
  const cell = Math.max(SMALLEST_CELL, Math.min(LARGEST_CELL, Math.floor(MAP_WIDTH / matrix.columns)));
  const canvas = picture(matrix, "Attention weights");
  canvas.style.width = `${cell * matrix.columns}px`;
  canvas.style.height = `${cell * matrix.rows}px`;
  const note = make("output", { class: "note" }, "\u00a0");
  canvas.addEventListener("pointermove", (event) => {
    const [column, row] = [event.offsetX, event.offsetY].map((place) => Math.floor(place / cell));
    const value = matrix.values[row * matrix.columns + column];
    if (value !== undefined) note.textContent = `${targets[row]} → ${sources[column]}: ${value.toFixed(3)}`;
  });
  const labels = (tokens, side) => {
    const made = make("div", { class: `attention-${side}` }, ...tokens.map((token) => make("span", { title: token }, token)));
    made.style.setProperty("--cell", `${cell}px`);
    return made;
  };
  const map = make("div", { class: "attention-heat" }, make("span"), labels(sources, "columns"), labels(targets, "rows"), canvas);
  return [make("div", { class: "scroll", tabindex: 0 }, map), note];
}

const headColour = (head, heads) => `hsl(${Math.round((360 * head) / heads)} 70% 50%)`;

/** Lines between words, in the colour of their head. */
function lines(weights, layer, chosen, targets, sources) {
  const [left, right, width] = [130, 230, 360];
  const height = LINE_HEIGHT * Math.max(targets.length, sources.length);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, class: "attention-lines", role: "img", "aria-label": "Attention between words" });
  const y = (index) => LINE_HEIGHT * (index + 0.5);
  const drawn = [];
  for (const head of chosen) {
    const { values, columns } = mean(weights, layer, [head]);
    const shift = (2 * head) / weights.heads - 1; // lines of several heads lie side by side
    values.forEach((value, i) => {
      if (value < WEAKEST_LINE) return;
      const [target, source] = [Math.floor(i / columns), i % columns];
      const place = { x1: left + 6, y1: y(target) + 4 * shift, x2: right - 6, y2: y(source) + 4 * shift };
      const line = make("line", { ...place, stroke: headColour(head, weights.heads), "stroke-width": 2.5, "stroke-opacity": value });
      drawn.push({ line, target, source });
      svg.append(line);
    });
  }
  const only = (side, index) => drawn.forEach((one) => one.line.classList.toggle("hidden-line", side !== "" && one[side] !== index));
  const words = (tokens, side, x, anchor) => tokens.forEach((token, index) => {
    const shown = token.length > 14 ? `${token.slice(0, 13)}…` : token;
    const word = make("text", { x, y: y(index), "text-anchor": anchor, "dominant-baseline": "central", tabindex: 0 }, shown);
    for (const name of ["pointerenter", "focus"]) word.addEventListener(name, () => only(side, index));
    for (const name of ["pointerleave", "blur"]) word.addEventListener(name, () => only("", index));
    svg.append(word);
  });
  words(targets, "target", left, "end");
  words(sources, "source", right, "start");
  return svg;
}

/** A small picture of each head, layers from top to bottom. */
function grid(weights, matrixOf, choose) {
  const made = make("div", { class: "attention-grid" });
  made.style.setProperty("--heads", String(weights.heads));
  for (let layer = 0; layer < weights.layers; layer++) {
    for (let head = 0; head < weights.heads; head++) {
      const name = `Layer ${layer + 1}, head ${head + 1}`;
      const button = make("button", { type: "button", title: name }, picture(matrixOf(layer, [head]), name));
      button.addEventListener("click", () => choose(layer, head));
      made.append(button);
    }
  }
  return made;
}

function sinusoids() {
  const values = Float32Array.from({ length: POSITIONS * DIMENSIONS }, (_, i) => {
    const [position, dimension] = [Math.floor(i / DIMENSIONS), i % DIMENSIONS];
    const angle = position / 10_000 ** ((2 * Math.floor(dimension / 2)) / DIMENSIONS);
    return dimension % 2 ? Math.cos(angle) : Math.sin(angle);
  });
  return { rows: POSITIONS, columns: DIMENSIONS, values };
}

/** The image, darkened where the model does not look. */
function overlay(attention, matrix, image) {
  const seen = overPatches(matrix, attention.patchRows, attention.patchColumns);
  const [least, most] = [Math.min(...seen.values), Math.max(...seen.values)];
  const unseen = { ...seen, values: seen.values.map((value) => (most - value) / (most - least || 1)) };
  const patches = picture(unseen, "Attention over the image", [0, 0, 0], SHADE);
  for (const [side, share] of [["width", attention.cropWidth ?? 1], ["height", attention.cropHeight ?? 1]]) {
    patches.style[side] = `${100 * share}%`;
    patches.style[side === "width" ? "left" : "top"] = `${50 * (1 - share)}%`;
  }
  return make("div", { class: "attention-image" }, make("img", { src: image, alt: "The image" }), patches);
}

function choice(label, options, value, change) {
  const made = make("select", {}, ...Object.entries(options).map(([key, name]) => make("option", { value: key }, name)));
  made.value = value;
  made.addEventListener("change", () => change(made.value));
  return make("label", {}, `${label} `, made);
}

/** The choices of a view, and the parts that it draws. */
class Viewer {
  constructor(container, message, image, last) {
    this.container = container;
    this.message = message;
    this.image = image;
    this.weights = Object.fromEntries(Object.keys(KINDS).filter((kind) => message[kind]).map((kind) => [kind, read(message[kind])]));
    this.views = image ? IMAGE_VIEWS : message.cross ? VIEWS : { ...VIEWS, positions: undefined };
    this.view = this.views[last?.view] ? last.view : Object.keys(this.views)[0];
    this.use(this.weights[last?.kind] ? last.kind : Object.keys(this.weights)[0], last);
  }

  /** Choose the matrix: that of `last` if this message has it, else the alignment of a translation, else the last layer. */
  use(kind, last = null) {
    const { alignment } = this.message;
    const weights = this.weights[kind];
    this.kind = kind;
    this.layer = kind === "cross" && alignment ? (alignment.layer ?? 0) : weights.layers - 1;
    this.heads = kind === "cross" && alignment ? "alignment" : "all";
    const isThere = last?.kind === kind && last.layer < weights.layers && (last.heads === "all" || Number(last.heads) < weights.heads);
    if (isThere) Object.assign(this, { layer: last.layer, heads: last.heads });
    this.draw();
  }

  set(changes) {
    Object.assign(this, changes);
    this.draw();
  }

  chosenHeads() {
    const { heads } = this.weights[this.kind];
    if (this.heads === "alignment") return this.message.alignment.heads ?? [0];
    return this.heads === "all" ? all(heads) : [Number(this.heads)];
  }

  tokens(side) {
    const list = (tokens = []) => tokens.map((token) => token.text ?? "");
    const [sources, targets] = [list(this.message.sourceTokens), list(this.message.targetTokens)];
    if (this.kind === "encoder") return sources;
    if (side === "rows" || this.kind !== "decoder") return side === "rows" ? targets : sources;
    return ["(start)", ...targets.slice(0, -1)];
  }

  controls() {
    const weights = this.weights[this.kind];
    const numbered = (count) => Object.fromEntries(all(count).map((index) => [index, index + 1]));
    const heads = { all: "all", ...(this.kind === "cross" && this.message.alignment && { alignment: "of the alignment" }) };
    const parts = Object.entries(this.views).filter(([, name]) => name).map(([view, name]) => {
      const button = make("button", { type: "button", "aria-pressed": String(view === this.view) }, name);
      button.addEventListener("click", () => this.set({ view }));
      return button;
    });
    const isShown = (...views) => views.includes(this.view);
    if (Object.keys(this.weights).length > 1 && isShown("map", "lines", "grid")) {
      const kinds = Object.fromEntries(Object.keys(this.weights).map((kind) => [kind, KINDS[kind]]));
      parts.push(choice("Attention", kinds, this.kind, (kind) => this.use(kind)));
    }
    if (isShown("map", "lines", "head")) {
      parts.push(choice("Layer", numbered(weights.layers), this.layer, (layer) => this.set({ layer: Number(layer), heads: "all" })));
      const options = { ...heads, ...numbered(weights.heads) };
      parts.push(choice("Heads", options, this.heads, (value) => this.set(value === "alignment" ? { heads: value, layer: this.message.alignment.layer ?? 0 } : { heads: value })));
    }
    return make("div", { class: "bar", role: "group", "aria-label": "View of attention" }, ...parts);
  }

  legend() {
    const { heads } = this.weights[this.kind];
    return make("p", { class: "note attention-legend" }, ...this.chosenHeads().map((head) => {
      const mark = make("span", {}, `head ${head + 1}`);
      mark.style.setProperty("--head", headColour(head, heads));
      return mark;
    }));
  }

  parts() {
    const weights = this.weights[this.kind];
    const heads = this.chosenHeads();
    const [rows, columns] = [this.tokens("rows"), this.tokens("columns")];
    const { patchRows, patchColumns } = this.message;
    const patches = (layer, chosen) => overPatches(mean(weights, layer, chosen), patchRows, patchColumns);
    const matrix = this.image ? patches : (layer, chosen) => mean(weights, layer, chosen);
    switch (this.view) {
      case "lines": return [this.legend(), lines(weights, this.layer, heads, rows, columns)];
      case "grid": return [grid(weights, matrix, (layer, head) => this.set({ layer, heads: String(head), view: this.image ? "head" : "map" }))];
      case "positions": return [make("div", { class: "attention-positions" }, picture(sinusoids(), "Sinusoidal positions"))];
      case "rollout": return [overlay(this.message, rollout(weights), this.image)];
      case "head": return [overlay(this.message, mean(weights, this.layer, heads), this.image)];
      default: return heatMap(mean(weights, this.layer, heads), rows, columns);
    }
  }

  draw() {
    this.container.replaceChildren(this.controls(), ...this.parts(), make("p", { class: "note" }, NOTES[this.view]));
  }
}

/**
 * Show the attention of a response in an element; `image` is the address of the image that it is about.
 * The choices of `last`, the viewer of another response of the same model, stay where this one has them.
 */
export function showAttention(container, message, image = "", last = null) {
  if (image && !message.patchRows) {
    container.replaceChildren("The patches of this model have no known places in the image.");
    return null;
  }
  return new Viewer(container, message, image, last);
}
