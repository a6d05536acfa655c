// A client of a Triptych server: the protos are read when it starts, nothing is generated.
'use strict';

const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const protobuf = require('protobufjs');

const FILES = ['translation', 'fill_mask', 'image_classification', 'model'].map((name) => `triptych/v1/${name}.proto`);

/**
 * Clients of a server's services, by name.
 * @param {string} address host and port
 * @param {string} protos the folder that has triptych/v1
 * @param {string} google the folder that has google/rpc: googleapis, or the npm package google-proto-files
 */
function connect(address, protos, google) {
  const definition = loader.loadSync(FILES, { includeDirs: [protos, google], keepCase: true, enums: String, defaults: true });
  const services = grpc.loadPackageDefinition(definition).triptych.v1;
  const names = Object.keys(services).filter((name) => name.endsWith('Service'));
  const options = { 'grpc.max_receive_message_length': 64 << 20 };
  return Object.fromEntries(names.map((name) => [name, new services[name](address, grpc.credentials.createInsecure(), options)]));
}

/** A call with one answer, as a promise. */
function ask(client, method, request, { seconds = 60, metadata = new grpc.Metadata() } = {}) {
  return new Promise((resolve, reject) => {
    const deadline = Date.now() + 1000 * seconds;
    client[method](request, metadata, { deadline }, (error, response) => (error ? reject(error) : resolve(response)));
  });
}

/** What a failed call says beside its code: { reason, fields, retrySeconds }. */
function detailsOf(error, google) {
  const root = new protobuf.Root();
  root.resolvePath = (_, target) => (target.startsWith('google/rpc/') ? path.join(google, target) : target);
  root.loadSync(['google/rpc/status.proto', 'google/rpc/error_details.proto']);
  const [bytes] = error.metadata.get('grpc-status-details-bin');
  const status = root.lookupType('google.rpc.Status').decode(bytes);
  const found = {};
  for (const { type_url: url, value } of status.details) {
    const detail = root.lookupType(url.split('/').pop()).decode(value);
    if (url.endsWith('.ErrorInfo')) found.reason = detail.reason;
    if (url.endsWith('.BadRequest')) found.fields = detail.fieldViolations.map((violation) => violation.field);
    if (url.endsWith('.RetryInfo')) found.retrySeconds = Number(detail.retryDelay.seconds) + detail.retryDelay.nanos / 1e9;
  }
  return found;
}

module.exports = { ask, connect, detailsOf };
