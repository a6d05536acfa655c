// Operators over rows: LogSoftmax and TopK, NormToBytes, and ScatterElements.

void compute_log_softmax(const Kernel& kernel, void* context) {
  const auto values = kernel.input<float>(context, 0);
  if (!values.rank) throw Fault{"LogSoftmax: a number alone has no last dimension"};
  float* result = kernel.output<float>(context, 0, values.shape, values.rank);
  const int64_t size = values.shape[values.rank - 1];
  for (int64_t row = 0; row < values.rows(); row++) kernel.level.log_softmax(values.data + row * size, result + row * size, size);
}

void compute_top_k(const Kernel& kernel, void* context) {
  const auto values = kernel.input<float>(context, 0);
  const auto wanted = kernel.input<int64_t>(context, 1);
  const int64_t size = values.rank ? values.shape[values.rank - 1] : 0, count = wanted.size() == 1 ? *wanted.data : 0;
  if (count < 1 || count > size) throw Fault{"TopK: k is not between 1 and the number of values"};
  int64_t shape[4] = {values.shape[0], values.shape[1], values.shape[2], values.shape[3]};
  shape[values.rank - 1] = count;
  float* best = kernel.output<float>(context, 0, shape, values.rank);
  int64_t* places = kernel.output<int64_t>(context, 1, shape, values.rank);
  for (int64_t row = 0; row < values.rows(); row++)
    kernel.level.top_k(values.data + row * size, size, count, best + row * count, places + row * count);
}

void compute_norm(const Kernel& kernel, void* context) {
  const auto x = kernel.input<float>(context, 0), y = kernel.input<float>(context, 1);
  const auto weights = kernel.input<float>(context, 2), biases = kernel.input<float>(context, 3), step = kernel.input<float>(context, 4);
  const auto zero = kernel.input<uint8_t>(context, 5);
  const int64_t size = x.rank ? x.shape[x.rank - 1] : 0;
  if (!x.rank || x.rank != y.rank || x.size() != y.size() || weights.size() != size || biases.size() != size || step.size() != 1 ||
      zero.size() != 1)
    throw Fault{"NormToBytes: unsupported shapes"};
  float* sum = kernel.output<float>(context, 0, x.shape, x.rank);
  uint8_t* bytes = kernel.output<uint8_t>(context, 1, x.shape, x.rank);
  const Norm norm{weights.data, biases.data, kernel.scale, *step.data, *zero.data, size};
  for (int64_t at = 0; at < x.rows() * size; at += size) kernel.level.norm_to_bytes(norm, x.data + at, y.data + at, sum + at, bytes + at);
}

// Along the last of two dimensions.
void compute_scatter(const Kernel& kernel, void* context) {
  const auto values = kernel.input<float>(context, 0), updates = kernel.input<float>(context, 2);
  const auto places = kernel.input<int64_t>(context, 1);
  if (values.rank != 2 || places.rank != 2 || places.shape[0] > values.shape[0]) throw Fault{"ScatterElements: no matrices"};
  if (updates.rank != 2 || updates.size() != places.size()) throw Fault{"ScatterElements: not one update for each place"};
  float* result = kernel.output<float>(context, 0, values.shape, 2);
  if (result != values.data) std::memcpy(result, values.data, values.size() * sizeof(float));
  for (int64_t i = 0; i < places.size(); i++) {
    const int64_t place = places.data[i] + (places.data[i] < 0 ? values.shape[1] : 0);
    if (place < 0 || place >= values.shape[1]) throw Fault{"ScatterElements: a place is outside of its row"};
    result[i / places.shape[1] * values.shape[1] + place] = updates.data[i];
  }
}

void make_last(Kernel& kernel, const void* info) {
  if (kernel.integer(info, "axis", -1) != -1 || kernel.integer(info, "largest", 1) != 1 || kernel.integer(info, "sorted", 1) != 1)
    throw Fault{"only the largest along the last dimension, sorted"};
}

void make_scatter(Kernel& kernel, const void* info) {
  const int64_t axis = kernel.integer(info, "axis", 0);
  char reduction[5] = "none";  // as long as any
  size_t size = sizeof reduction;
  const auto read = kernel.at<Status (*)(const void*, const char*, char*, size_t*)>(TEXT_ATTRIBUTE);
  if (Status status = read(info, "reduction", reduction, &size)) kernel.at<void (*)(Status)>(RELEASE_STATUS)(status);  // there is none
  if ((axis != 1 && axis != -1) || std::strcmp(reduction, "none"))
    throw Fault{"ScatterElements: only along the last of two dimensions, and without a reduction"};
}

void make_norm(Kernel& kernel, const void* info) { kernel.scale = kernel.number(info, "epsilon", 1e-5f); }
