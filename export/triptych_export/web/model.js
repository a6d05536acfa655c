// Models in the browser or in Node, with onnxruntime-web and @huggingface/tokenizers. No access to the page.

/**
 * Open the model that `triptych export --for web` wrote.
 * `ort` and `Tokenizer` are those packages' exports; `read(name)` returns the bytes of a file.
 */
export async function open(ort, Tokenizer, read) {
  const json = async (name) => JSON.parse(new TextDecoder().decode(await read(name)));
  const settings = await json("model.json");
  const externalData = await Promise.all(settings.weights.map(async (path) => ({ path, data: await read(path) })));
  const graphs = {};
  for (const [name, file] of Object.entries(settings.graphs)) {
    graphs[name] = await ort.InferenceSession.create(await read(file), { executionProviders: ["wasm"], externalData });
  }
  const files = await Promise.all((settings.tokenizers ?? []).map(json));
  const tokenizers = files.length ? [textTokenizer(Tokenizer, files[0], settings.mask_token), new Tokenizer(files.at(-1), {})] : [];
  const tensor = (type, values, dims = [values.length]) => new ort.Tensor(type, values, dims);
  return { settings, run: TASKS[settings.task]({ settings, graphs, tokenizers, tensor }) };
}

/** A tokenizer that takes special tokens in a text for text, as the server does, but for the mask. */
function textTokenizer(Tokenizer, file, mask) {
  const kept = file.added_tokens.filter(({ special, content }) => !special || content === mask);
  const tokenizer = new Tokenizer({ ...file, added_tokens: kept }, {});
  for (const { content, id } of file.added_tokens) tokenizer.model.tokens_to_ids.set(content, id); // those that it adds itself
  return tokenizer;
}

const TASKS = { translation, "fill-mask": fillMask, "image-classification": classifyImage };

// Titles and initials, where Intl.Segmenter ends a sentence. It also joins "Vitamin C. Good.", which costs less than a cut name.
const UNFINISHED = /(?:^|[^\p{L}\p{N}])(?:(?!I)\p{Lu}|Dr|Mrs?|Ms|Prof)\. +$/u;
const MOST_JOINED = 5; // segments, as in "Prof. J. R. R. Tolkien"

/** Whether a sentence is in capitals; words of fewer than five letters are often acronyms, those with other signs codes. */
function inCapitals(text) {
  if (text === text.toLowerCase() || text.toLowerCase().toUpperCase() !== text) return false;
  return (text.match(/\p{L}/gu) ?? []).length >= 5 && (text.includes(" ") || /^\p{P}*\p{L}+\p{P}*$/u.test(text));
}

const wide = (values) => BigInt64Array.from(values, BigInt);

/** Translate with greedy search, one sentence at a time. `onText` receives the translation so far. */
function translation({ settings, graphs, tokenizers: [tokenizer, target], tensor }) {
  const { layers, heads, head_dim: width, start, end, most_source: mostSource, most_target: mostTarget, max_length: most } = settings;
  const splitter = settings.language && new Intl.Segmenter(settings.language, { granularity: "sentence" });

  // The clean-up would take out spaces before marks that a language wants there, as French does.
  const decode = (tokens) => (tokens.length ? target.decode(tokens, { skip_special_tokens: true, clean_up_tokenization_spaces: false }) : "");

  async function firstInputs(sentence) {
    const ids = tokenizer.encode(sentence).ids;
    if (ids.length > mostSource) throw new Error(`a sentence has ${ids.length} tokens; the model takes at most ${mostSource}`);
    const source = { source: tensor("int64", wide(ids), [1, ids.length]), lengths: tensor("int32", Int32Array.of(ids.length)) };
    const { memory } = await graphs.encoder.run(source);
    const inputs = { forced: tensor("int64", BigInt64Array.of(-1n)) };
    const size = heads * ids.length * width;
    for (let index = 0; index < 2 * layers; index++) {
      const name = `${index % 2 ? "value" : "key"}_${index >> 1}`;
      inputs[`memory_${name}`] = tensor("float32", memory.data.slice(index * size, (index + 1) * size), [1, heads, ids.length, width]);
      inputs[`cache_${name}`] = tensor("float32", new Float32Array(heads * mostTarget * width), [1, heads, mostTarget, width]);
    }
    return inputs;
  }

  function* sentencesOf(text) {
    let held = [];
    for (const { segment } of splitter ? splitter.segment(text) : [{ segment: text }]) {
      const joins = held.length < MOST_JOINED && UNFINISHED.test(held.at(-1)?.slice(-8)) && /^\p{Lu}/u.test(segment);
      if (!joins) {
        yield held.join("");
        held = [];
      }
      held.push(segment);
    }
    yield held.join("");
  }

  async function translateSentence(sentence, onText, signal) {
    const inputs = await firstInputs(sentence);
    const tokens = [];
    let token = BigInt(start);
    while (tokens.length < most && !signal?.aborted) {
      inputs.tokens = tensor("int64", BigInt64Array.of(token));
      inputs.positions = tensor("int32", Int32Array.of(tokens.length));
      const outputs = await graphs.step.run(inputs);
      [token] = outputs.next.data;
      if (token === BigInt(end)) break;
      for (const name of Object.keys(outputs)) if (name !== "next") inputs[name.replace("present", "cache")] = outputs[name];
      tokens.push(Number(token));
      onText(decode(tokens));
    }
    return decode(tokens);
  }

  /** A model that knows few texts in capitals gets them in lower case. */
  async function translateCapitals(sentence, onText, signal) {
    const [first, ...others] = sentence;
    const translated = await translateSentence(first + others.join("").toLowerCase(), (part) => onText(part.toUpperCase()), signal);
    return translated.toUpperCase();
  }

  return async (text, onText = () => {}, signal) => {
    let done = "";
    for (const segment of sentencesOf(text)) {
      const sentence = segment.trim();
      const at = sentence ? segment.indexOf(sentence) : segment.length;
      done += segment.slice(0, at);
      const translate = settings.lowers_capitals && inCapitals(sentence) ? translateCapitals : translateSentence;
      if (sentence) done += await translate(sentence, (part) => onText(done + part), signal);
      done += segment.slice(at + sentence.length);
    }
    return done;
  };
}

/** Rank the words for each mask of a text. */
function fillMask({ settings, graphs, tokenizers: [tokenizer, target], tensor }) {
  return async (text, count = 5) => {
    const ids = tokenizer.encode(text).ids;
    if (ids.length > settings.most_tokens) throw new Error(`the text has ${ids.length} tokens; the model takes at most ${settings.most_tokens}`);
    const places = ids.flatMap((id, place) => (id === settings.mask ? [place] : []));
    if (!places.length) throw new Error(`write ${settings.mask_token} in place of a word`);
    const inputs = {
      ids: tensor("int32", Int32Array.from(ids), [1, ids.length]),
      segments: tensor("int32", new Int32Array(ids.length), [1, ids.length]),
      lengths: tensor("int32", Int32Array.of(ids.length)),
      places: tensor("int64", wide(places)),
      k: tensor("int64", BigInt64Array.of(BigInt(count))),
    };
    const { scores, tokens } = await graphs.graph.run(inputs, ["scores", "tokens"]);
    const words = [...tokens.data].map((token, index) => ({ label: target.decode([Number(token)]), score: scores.data[index] }));
    return places.map((_, mask) => words.slice(mask * count, (mask + 1) * count));
  };
}

/** Rank the labels of a picture: RGB bytes, `height` rows of `width` pixels of the settings' size; `fitted` makes them of any. */
function classifyImage({ settings, graphs, tensor }) {
  return async (pixels, count = 5) => {
    const inputs = {
      pixels: tensor("uint8", pixels, [1, settings.height, settings.width, 3]),
      k: tensor("int64", BigInt64Array.of(BigInt(Math.min(count, settings.labels.length)))),
    };
    const { scores, labels } = await graphs.graph.run(inputs, ["scores", "labels"]);
    return [...labels.data].map((label, index) => ({ label: settings.labels[Number(label)], score: scores.data[index] }));
  };
}

const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));
const within = (most, weight) => (x) => (Math.abs(x) < most ? weight(Math.abs(x)) : 0);
const FILTERS = { // how far they reach, and the weight at a distance
  box: [0.5, (x) => Number(x > -0.5 && x <= 0.5)],
  bilinear: [1, within(1, (x) => 1 - x)],
  hamming: [1, within(1, (x) => sinc(x) * (0.54 + 0.46 * Math.cos(Math.PI * x)))],
  bicubic: [2, within(2, (x) => (x < 1 ? (1.5 * x - 2.5) * x * x + 1 : (((x - 5) * x + 8) * x - 4) * -0.5))],
  lanczos: [3, within(3, (x) => sinc(x) * sinc(x / 3))],
};
const ONE = 2 ** 22; // weights are whole numbers

/** What the middle `count` of `size` pixels are made of, where there were `length`: the place of the first one, and the weights from there. */
function partsOf(length, size, count, interpolation, rounds) {
  const scale = length / size;
  const before = Math.floor((size - count) / 2);
  const first = before + (rounds && (size - count) % 2 ? before % 2 : 0); // half a pixel is rounded to the even one, or down
  if (interpolation === "nearest") {
    let place = scale / 2; // a sum, as in Pillow: a product is rounded differently
    const places = Array.from({ length: first + count }, () => [Math.floor(place), (place += scale)][0]);
    return places.slice(first).map((start) => ({ start, weights: [ONE] }));
  }
  const [reach, filter] = FILTERS[interpolation];
  const wider = Math.max(scale, 1);
  return Array.from({ length: count }, (_, index) => {
    const center = (first + index + 0.5) * scale;
    const start = Math.max(0, Math.floor(center - reach * wider + 0.5));
    const end = Math.min(length, Math.floor(center + reach * wider + 0.5));
    const weights = Array.from({ length: end - start }, (_, at) => filter((start + at - center + 0.5) * (1 / wider)));
    const sum = weights.reduce((one, other) => one + other, 0) || 1;
    return { start, weights: weights.map((weight) => Math.sign(weight) * Math.floor(Math.abs(weight / sum) * ONE + 0.5)) };
  });
}

/** One pass over a picture, `{ width, height, pixels }`: its columns or rows become as many as there are parts. */
function scaled({ width, height, pixels }, parts, isVertical) {
  const [columns, rows] = isVertical ? [width, parts.length] : [parts.length, height];
  const made = new Uint8ClampedArray(4 * columns * rows);
  for (let row = 0, to = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, to += 4) {
      const { start, weights } = parts[isVertical ? row : column];
      for (let colour = 0; colour < 3; colour++) {
        let from = 4 * (isVertical ? start * width + column : row * width + start) + colour;
        let sum = ONE / 2;
        for (let at = 0; at < weights.length; at++, from += isVertical ? 4 * width : 4) sum += weights[at] * pixels[from];
        made[to + colour] = Math.floor(sum / ONE);
      }
    }
  }
  return { width: columns, height: rows, pixels: made };
}

/**
 * Scale a picture as the server does, with the arithmetic of Pillow 13, and cut out its middle: RGB bytes of the settings' size.
 * Its `pixels` are RGBA bytes, `height` rows of `width`; alpha is dropped.
 */
export function fitted(picture, settings) {
  const { width, height } = picture;
  const { stretched, shortest_edge: edge, interpolation, round_crop: rounds } = settings;
  const lengthOf = (length, other) => (length <= other ? edge : Math.floor((edge * length) / other));
  const [tall, wide] = stretched ?? [lengthOf(height, width), lengthOf(width, height)];
  const columns = partsOf(width, wide, settings.width, interpolation, rounds);
  const rows = partsOf(height, tall, settings.height, interpolation, rounds);
  const isTall = height > tall && height - tall > 2 * (width - wide); // then the rows come first; results are rounded in between
  const first = scaled(picture, isTall ? rows : columns, isTall);
  return new Uint8Array(scaled(first, isTall ? columns : rows, !isTall).pixels.filter((_, index) => index % 4 < 3));
}
