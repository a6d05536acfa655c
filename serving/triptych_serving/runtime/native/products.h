// The operator MatMulIntegerToFloat of decoding.cpp: its weights are packed once, where they are part of the graph.

// Weights as the kernels read them. Equal ones of several sessions share memory.
struct Packed {
  int64_t depth, columns;  // the depth is rounded up
  std::vector<int8_t> memory;
  std::vector<int32_t> sums;

  Packed(const Level& level, const int8_t* from, int64_t from_depth, int64_t columns) : depth(rounded(from_depth)), columns(columns) {
    memory.resize((columns + PANEL - 1) / PANEL * PANEL * depth + LINE);
    sums.resize(columns);
    level.pack(from, from_depth, columns, const_cast<int8_t*>(weights()), sums.data());
  }
  Packed(const Packed&) = delete;

  const int8_t* weights() const { return memory.data() + (LINE - reinterpret_cast<uintptr_t>(memory.data()) % LINE) % LINE; }

  bool equals(const Packed& other) const {
    return depth == other.depth && columns == other.columns && sums == other.sums &&
           !std::memcmp(weights(), other.weights(), memory.size() - LINE);
  }
};

// Return the weights, or equal ones that another session packed.
std::shared_ptr<const Packed> share(std::shared_ptr<const Packed> packed) {
  static std::mutex mutex;
  static std::vector<std::weak_ptr<const Packed>> known;
  const std::lock_guard<std::mutex> lock(mutex);
  size_t kept = 0;
  for (size_t i = 0; i < known.size(); i++) {
    const auto other = known[i].lock();
    if (!other) continue;
    if (other->equals(*packed)) return other;
    known[kept++] = known[i];
  }
  known.resize(kept);
  known.push_back(packed);
  return packed;
}

void compute_product(const Kernel& kernel, void* context) {
  const auto inputs = kernel.input<uint8_t>(context, 0);
  const auto weights = kernel.input<int8_t>(context, 1);
  const auto step = kernel.input<float>(context, 2), scales = kernel.input<float>(context, 3), bias = kernel.input<float>(context, 6);
  const auto zero = kernel.input<uint8_t>(context, 4);
  const auto zeros = kernel.input<int8_t>(context, 5);
  const int64_t depth = weights.shape[0], columns = weights.shape[1], rows = inputs.rows();
  if (weights.rank != 2 || !inputs.rank || inputs.shape[inputs.rank - 1] != depth) throw Fault{"MatMulIntegerToFloat: unsupported shapes"};
  if (step.size() != 1 || (zero.data && zero.size() != 1)) throw Fault{"MatMulIntegerToFloat: the inputs have more than one scale"};
  if (scales.size() != 1 && scales.size() != columns) throw Fault{"MatMulIntegerToFloat: not one scale for each column"};
  for (int64_t i = 0; zeros.data && i < zeros.size(); i++)
    if (zeros.data[i]) throw Fault{"MatMulIntegerToFloat: the weights have zero points"};
  const auto packed = kernel.packed ? kernel.packed : std::make_shared<const Packed>(kernel.level, weights.data, depth, columns);
  thread_local std::vector<float> products;
  products.resize(columns);
  for (int64_t i = 0; i < columns; i++) products[i] = *step.data * scales.data[scales.size() == 1 ? 0 : i];
  thread_local std::vector<uint8_t> padded;
  const uint8_t* from = inputs.data;
  if (packed->depth != depth) {
    padded.assign(rows * packed->depth, 0);
    for (int64_t row = 0; row < rows; row++) std::memcpy(padded.data() + row * packed->depth, from + row * depth, depth);
    from = padded.data();
  }
  int64_t shape[4] = {inputs.shape[0], inputs.shape[1], inputs.shape[2], inputs.shape[3]};
  shape[inputs.rank - 1] = columns;
  float* to = kernel.output<float>(context, 0, shape, inputs.rank);
  const Product product{from, packed->weights(), packed->sums.data(), products.data(), bias.data, to,
                        packed->depth, columns, zero.data ? *zero.data : 0};
  kernel.level.multiply(product, rows);
}

Status create_product(const CustomOp*, const void* const* api, const void* info, void** kernel) {
  Kernel made{api, 0, 1.0f, false};
  int constant = 0;
  const void* value = nullptr;
  try {
    made.check(made.at<Status (*)(const void*, size_t, int*, const void**)>(CONSTANT_INPUT)(info, 1, &constant, &value));
    if (constant) {
      const auto weights = made.read<int8_t>(value);
      if (weights.rank != 2) throw Fault{"MatMulIntegerToFloat: the weights are no matrix"};
      made.packed = share(std::make_shared<const Packed>(made.level, weights.data, weights.shape[0], weights.shape[1]));
    }
    *kernel = new Kernel(made);
    return nullptr;
  } catch (const Fault& fault) {
    return made.fail(fault.text);
  } catch (...) {
    return made.fail("out of memory");
  }
}
