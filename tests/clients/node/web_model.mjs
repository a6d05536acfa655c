// Run the model that `triptych export --for web` wrote to a folder, for the inputs of a file of JSON; prints the results.
import { readFile } from "node:fs/promises";
import * as ort from "onnxruntime-web/wasm";
import { Tokenizer } from "@huggingface/tokenizers";

const [folder, inputs] = process.argv.slice(2);
const { open } = await import(`${folder}/model.js`);
ort.env.wasm.numThreads = 1;
const { run } = await open(ort, Tokenizer, async (name) => new Uint8Array(await readFile(`${folder}/model/${name}`)));
const results = [];
for (const input of JSON.parse(await readFile(inputs, "utf8"))) results.push(await run(Array.isArray(input) ? Uint8Array.from(input) : input));
console.log(JSON.stringify(results));
