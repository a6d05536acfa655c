// node connect.mjs URL DESCRIPTORS: calls the gateway with @connectrpc/connect-web, prints what came back as JSON.

import fs from 'node:fs';
import { createFileRegistry, fromBinary } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-web';

const [url, descriptors] = process.argv.slice(2);
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, fs.readFileSync(descriptors)));
const service = registry.getService('triptych.v1.TranslationService');

async function session(useBinaryFormat) {
  const client = createClient(service, createConnectTransport({ baseUrl: url, useBinaryFormat }));
  const request = { contents: ['I have a cat.'], targetLanguageCode: 'de' };
  const { translations } = await client.translate(request);
  let pieces = '';
  for await (const { event } of client.translateStream(request)) if (event.case === 'piece') pieces += event.value.text;
  const failure = async (promise) => Code[ConnectError.from(await promise.then(() => new Error('no error'), (error) => error)).code];
  const abort = new AbortController();
  const aborted = failure(client.translate({ ...request, contents: Array(200).fill('I have a cat.') }, { signal: abort.signal }));
  abort.abort();
  return {
    translation: translations[0].translatedText,
    pieces,
    invalid: await failure(client.translate({ contents: [''] })),
    unknown: await failure(client.translate({ ...request, targetLanguageCode: 'xx' })),
    late: await failure(client.translate({ ...request, contents: Array(200).fill('I have a cat.') }, { timeoutMs: 1 })),
    aborted: await aborted,
  };
}

process.stdout.write(JSON.stringify([await session(false), await session(true)]));
