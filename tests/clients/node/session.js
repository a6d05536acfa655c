// node session.js ADDRESS PROTOS GOOGLE < request.json: makes every kind of call, prints what came back as JSON.
'use strict';

const fs = require('node:fs');
const grpc = require('@grpc/grpc-js');
const { ask, connect, detailsOf } = require('./triptych');

const [address, protos, google] = process.argv.slice(2);
const { source, many, masked, image } = JSON.parse(fs.readFileSync(0, 'utf8'));
const services = connect(address, protos, google);

async function translate() {
  const metadata = new grpc.Metadata();
  metadata.set('x-request-id', 'node-1');
  const options = { beam_size: 2, num_hypotheses: 2, return_scores: true };
  const response = await ask(services.TranslationService, 'Translate', { contents: [source], options }, { metadata });
  const [translation] = response.translations;
  return {
    text: translation.translated_text,
    finish: translation.hypotheses[0].finish_reason,
    hypotheses: translation.hypotheses.length,
    scored: translation.hypotheses[0].score < 0,
    model: response.model,
    timed: response.timing.inference_seconds > 0,
  };
}

async function stream() {
  const call = services.TranslationService.TranslateStream({ contents: [source] }, { deadline: Date.now() + 60_000 });
  const seen = { pieces: '', result: '', model: '' };
  for await (const event of call) {
    if (event.piece) seen.pieces += event.piece.text;
    if (event.result) seen.result = event.result.translation.translated_text;
    if (event.summary) seen.model = event.summary.model;
  }
  return seen;
}

async function fillMask() {
  const response = await ask(services.FillMaskService, 'FillMask', { contents: [masked], top_k: 1 });
  return response.results[0].masks[0].candidates[0].sequence;
}

async function classifyImage() {
  const response = await ask(services.ImageClassificationService, 'ClassifyImage', { images: [Buffer.from(image, 'base64')] });
  return response.results[0].labels[0].label;
}

function classifyImages() {
  return new Promise((resolve, reject) => {
    const call = services.ImageClassificationService.ClassifyImageStream({ deadline: Date.now() + 60_000 });
    const answers = {};
    call.on('data', (one) => (answers[one.image_id] = one.error ? one.error.message : one.result.labels[0].label));
    call.on('error', reject);
    call.on('end', () => resolve(answers));
    call.write({ image_id: 1, image: Buffer.from(image, 'base64') });
    call.write({ image_id: 2, image: Buffer.from('no image') });
    call.end();
  });
}

async function models() {
  const response = await ask(services.ModelService, 'ListModels', {});
  return response.models.map((model) => `${model.name} ${model.version} ${model.state}`).sort();
}

/** The error of a promise that must fail. */
async function failure(promise) {
  const error = await promise.then(() => undefined, (reason) => reason);
  if (error === undefined) throw new Error('it did not fail');
  return error;
}

async function badText() {
  const error = await failure(ask(services.TranslationService, 'Translate', { contents: [source, ' '] }));
  return { code: grpc.status[error.code], message: error.details, ...detailsOf(error, google) };
}

async function noModel() {
  const error = await failure(ask(services.TranslationService, 'Translate', { contents: [source], model: 'nobody' }));
  return { code: grpc.status[error.code], ...detailsOf(error, google) };
}

async function deadline() {
  const error = await failure(ask(services.TranslationService, 'Translate', { contents: many }, { seconds: 0.05 }));
  return grpc.status[error.code];
}

function cancel() {
  return new Promise((resolve) => {
    const call = services.TranslationService.TranslateStream({ contents: many });
    call.once('data', () => call.cancel());
    call.on('error', (error) => resolve(grpc.status[error.code]));
    call.on('end', () => resolve('it ended'));
  });
}

async function main() {
  const steps = { models, translate, stream, fillMask, classifyImage, classifyImages, badText, noModel, deadline, cancel };
  const answers = {};
  for (const [name, step] of Object.entries(steps)) answers[name] = await step();
  process.stdout.write(JSON.stringify(answers));
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exitCode = 1;
});
