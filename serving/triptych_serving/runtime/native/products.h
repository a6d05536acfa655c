// The operators MatMulIntegerToFloat, PerRowMatMul, PerRowGemm, PerTokenMatMul, PerTokenGemm, MatMulNBits, BlockMatMul, MatMul and Gemm
// of decoding.cpp: their weights are packed once, where they are part of the graph.

constexpr size_t PAGE = 1 << 12, HUGE_PAGE = 1 << 21, CHUNK = 1 << 24;  // bytes
constexpr int64_t LARGEST_OF_7 = 64;  // two products of such weights with unsigned bytes have a sum of 16 bits
constexpr int64_t PART = 1 << 17;  // bytes of weights that a thread takes at a time: they stay in the second cache for all rows
constexpr int64_t BLOCK_OF_INPUTS = 1 << 19;  // bytes of rows that are multiplied together: they stay there, too
constexpr int64_t ROWS_AT_ONCE = 16;          // that a thread rounds at a time

// Memory on huge pages: with fewer translations of addresses, weights are read faster.
struct Chunk {
  const size_t size;
  char* const data;
  size_t used = 0;

  explicit Chunk(size_t size) : size(size), data(static_cast<char*>(std::aligned_alloc(HUGE_PAGE, size))) {
    if (!data) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    madvise(data, size, MADV_HUGEPAGE);  // advice, which may be ignored
#endif
  }
  Chunk(const Chunk&) = delete;
  ~Chunk() { std::free(data); }
};

// Memory of one matrix. Those that are packed one after the other, as the graph uses them, share a chunk: few fill a huge page.
class Memory {
  static inline std::mutex mutex;
  static inline std::weak_ptr<Chunk> open;
  std::shared_ptr<Chunk> chunk;

 public:
  const size_t size;
  void* data;

  explicit Memory(size_t bytes) : size(round_up(bytes, LINE)) {
    const std::lock_guard<std::mutex> lock(mutex);
    chunk = open.lock();
    if (!chunk || chunk->size - chunk->used < size) open = chunk = std::make_shared<Chunk>(std::max<size_t>(CHUNK, round_up(size, HUGE_PAGE)));
    data = chunk->data + chunk->used;
    chunk->used += size;
  }
  Memory(const Memory&) = delete;
  ~Memory() {
    const std::lock_guard<std::mutex> lock(mutex);
    char* const start = static_cast<char*>(data);
    if (start + size == chunk->data + chunk->used) {
      chunk->used -= size;  // the next one has its place
      return;
    }
#if defined(MADV_HUGEPAGE)
    const size_t before = round_up(start - chunk->data, PAGE) - (start - chunk->data);
    if (size > before) madvise(start + before, (size - before) / PAGE * PAGE, MADV_DONTNEED);
#endif
  }
};

bool has_7_bits(const int8_t* weights, int64_t size) {
  return std::all_of(weights, weights + size, [](int8_t weight) { return weight >= -LARGEST_OF_7 && weight <= LARGEST_OF_7; });
}

// Weights as the kernels read them. Equal ones of several sessions share memory.
struct Packed {
  int64_t depth, columns, parts = 1;  // the depth of bytes is rounded up; 2 parts: halves, where sums of the weights' products could overflow
  Memory memory;
  std::vector<int32_t> sums;  // of bytes
  float factor = 1;           // of scales and offsets of 4 bits

  // In each panel of columns, four bytes of each column are together.
  Packed(const Level& level, const int8_t* from, int64_t from_depth, int64_t columns)
      : depth(round_up(from_depth, level.depth_unit)), columns(columns), parts(level.takes_bytes || has_7_bits(from, from_depth * columns) ? 1 : 2),
        memory(round_up(columns, level.panel) * depth * parts), sums(round_up(columns, level.panel)) {
    std::memset(memory.data, 0, memory.size);  // the last panel is not filled, nor is the rounded depth
    int8_t* __restrict to = static_cast<int8_t*>(memory.data);
    for (int64_t first = 0; first < columns; first += level.panel)
      for (int64_t part = 0; part < parts; part++)
        for (int64_t k = 0; k < depth; k += 4, to += 4 * level.panel)
          for (int64_t j = 0; j < std::min<int64_t>(4, from_depth - k); j++) {
            const int8_t* const row = from + (k + j) * columns + first;
            const int64_t count = std::min(level.panel, columns - first);
            int32_t* const __restrict sum = sums.data() + first;
            for (int64_t i = 0; i < count; i++) sum[i] += to[4 * i + j] = part ? row[i] - row[i] / 2 : parts == 1 ? row[i] : row[i] / 2;
          }
  }
  Packed(const Level& level, const float* from, int64_t depth, int64_t columns, bool transposed)
      : depth(depth), columns(columns), memory(round_up(columns, level.width) * depth * sizeof(float)) {
    level.pack_floats(from, depth, columns, transposed, static_cast<float*>(memory.data));
  }

  Packed(const Level& level, const BlockWeights& from)
      : depth(from.depth), columns(from.columns), memory(round_up(columns, level.panel) / level.panel * from.blocks() * level.block_bytes) {
    float largest = FLT_MIN;
    for (int64_t column = 0; column < columns; column++)
      for (int64_t block = 0; block < from.blocks(); block++)
        largest = std::max({largest, std::fabs(from.scale(column, block)), std::fabs(from.offset(column, block))});
    factor = std::ldexp(1.0f, std::ilogb(largest) - 10);  // scales and offsets then have 16 bits, of which 11 are exact
    std::memset(memory.data, 0, memory.size);
    level.pack_blocks(from, 1 / factor, static_cast<uint8_t*>(memory.data));
  }

  bool equals(const Packed& other) const {
    return factor == other.factor && depth == other.depth && columns == other.columns && parts == other.parts && sums == other.sums && memory.size == other.memory.size &&
           !std::memcmp(memory.data, other.memory.data, memory.size);
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

// Compute panels of columns of so many bytes each: none if the depth is 0.
template <typename Function>
void run_panels(const Kernel& kernel, void* context, int64_t columns, int64_t width, int64_t bytes, Function function) {
  const int64_t panels = (columns + width - 1) / width, each = std::max<int64_t>(1, PART / std::max<int64_t>(1, bytes));
  run_parallel(kernel, context, (panels + each - 1) / each, [&](int64_t part) {
    function(part * each, std::min((part + 1) * each, panels));
  });
}

// What the bytes of a product are multiplied by.
struct Operands {
  std::shared_ptr<const Packed> packed;
  int64_t depth, columns;
  std::vector<float> scales;  // of each column: that of the weights times the inputs' one
  std::vector<float> bias;    // empty: none
  int32_t zero;
};

// Places of the operands among a node's inputs, where they have one; the weights are at 1.
struct Places {
  size_t scales, bias;
  size_t step, zero, zeros;  // 0: the inputs are rounded here, each row by itself
  bool between;              // then: between its smallest and largest value, not by its largest magnitude
};

// Read the operands; `read(place, T())` returns the tensor of an input.
template <typename Read>
Operands read_operands(const Kernel& kernel, const Places& places, Read read) {
  const auto weights = read(1, int8_t());
  const auto scales = read(places.scales, float()), bias = places.bias ? read(places.bias, float()) : Kernel::Tensor<float>();
  Operands operands{kernel.packed, weights.shape[0], weights.shape[1], {}, {}, TOKEN_ZERO};
  if (weights.rank != 2) throw Fault{"a product of bytes: the weights are no matrix"};
  if (scales.size() != 1 && scales.size() != operands.columns) throw Fault{"a product of bytes: not one scale for each column"};
  if (bias.data && bias.size() != operands.columns) throw Fault{"a product of bytes: not one summand for each column"};
  float factor = places.between ? 1 : TOKEN_STEP;
  if (places.step) {
    const auto step = read(places.step, float());
    const auto zero = read(places.zero, uint8_t());
    const auto zeros = read(places.zeros, int8_t());
    if (step.size() != 1 || (zero.data && zero.size() != 1)) throw Fault{"a product of bytes: the inputs have more than one scale"};
    for (int64_t i = 0; zeros.data && i < zeros.size(); i++)
      if (zeros.data[i]) throw Fault{"a product of bytes: the weights have zero points"};
    factor = *step.data;
    operands.zero = zero.data ? *zero.data : 0;
  }
  if (!operands.packed) operands.packed = std::make_shared<const Packed>(kernel.level, weights.data, operands.depth, operands.columns);
  for (int64_t i = 0; i < operands.columns; i++) operands.scales.push_back(factor * scales.data[scales.size() == 1 ? 0 : i]);
  operands.scales.resize(operands.packed->sums.size());
  if (bias.data) {
    operands.bias.assign(bias.data, bias.data + operands.columns);
    operands.bias.resize(operands.scales.size());
  }
  return operands;
}

// The output for inputs of such a shape.
template <typename T>
float* product_output(const Kernel& kernel, void* context, const Kernel::Tensor<T>& inputs, int64_t columns) {
  int64_t shape[4] = {inputs.shape[0], inputs.shape[1], inputs.shape[2], inputs.shape[3]};
  shape[inputs.rank - 1] = columns;
  return kernel.output<float>(context, 0, shape, inputs.rank);
}

// Call `function(operands)` with the operands of a product of bytes.
template <typename Function>
void with_operands(const Kernel& kernel, void* context, const Places& places, Function function) {
  if (kernel.operands) return function(*kernel.operands);
  function(read_operands(kernel, places, [&](size_t place, auto kind) { return kernel.input<decltype(kind)>(context, place); }));
}

// Multiply bytes `[rows, depth]`; `factors` and `zeros`: of each row, or null.
void multiply_bytes(const Kernel& kernel, void* context, const Operands& by, const uint8_t* inputs, int64_t rows, const float* factors,
                    const int32_t* zeros, float* to) {
  const Packed& packed = *by.packed;
  const Product product{inputs, static_cast<const int8_t*>(packed.memory.data), packed.sums.data(), by.scales.data(), factors, zeros,
                        by.bias.empty() ? nullptr : by.bias.data(), to, packed.depth, by.columns, packed.parts, by.zero};
  const int64_t panel = kernel.level.panel;
  run_panels(kernel, context, by.columns, panel, packed.depth * packed.parts * panel,
             [&](int64_t first, int64_t stop) { kernel.level.multiply(product, rows, first, stop); });
}

// Fetch what a product reads first, while its inputs are rounded.
void fetch_first(const Kernel& kernel, const Operands& by) {
  prefetch(static_cast<const int8_t*>(by.packed->memory.data), AHEAD);
  prefetch(by.packed->sums.data(), kernel.level.panel);
  prefetch(by.scales.data(), kernel.level.panel);
}

// Call `function(first, count)` for blocks of rows, of whose bytes the second cache keeps some hundred kilobytes.
template <typename Function>
void for_blocks(int64_t rows, int64_t depth, Function function) {
  const int64_t blocks = std::max<int64_t>(1, (rows * depth + BLOCK_OF_INPUTS - 1) / BLOCK_OF_INPUTS), height = (rows + blocks - 1) / blocks;
  for (int64_t first = 0; first < rows; first += height) function(first, std::min(height, rows - first));
}

// The same of a node's input.
template <const Places&>
void multiply_input(const Kernel& kernel, void* context, const Operands& by, const Kernel::Tensor<uint8_t>& inputs, float* to) {
  const int64_t depth = by.depth, rounded_depth = by.packed->depth, rows = inputs.rows();
  thread_local std::vector<uint8_t> padded;
  const uint8_t* from = inputs.data;
  if (rounded_depth != depth) {
    padded.assign(rows * rounded_depth, 0);
    for (int64_t row = 0; row < rows; row++) std::memcpy(padded.data() + row * rounded_depth, from + row * depth, depth);
    from = padded.data();
  }
  for_blocks(rows, rounded_depth, [&](int64_t first, int64_t count) {
    multiply_bytes(kernel, context, by, from + first * rounded_depth, count, nullptr, nullptr, to + first * by.columns);
  });
}

// The same of floats: each row is divided by its largest magnitude or step and rounded, and its products are multiplied by that again.
template <const Places& PLACES>
void multiply_input(const Kernel& kernel, void* context, const Operands& by, const Kernel::Tensor<float>& inputs, float* to) {
  const int64_t depth = by.packed->depth;
  fetch_first(kernel, by);
  for_blocks(inputs.rows(), depth, [&](int64_t start, int64_t count) {
    thread_local std::vector<uint8_t> memory;
    thread_local std::vector<float> factors_of_rows;
    thread_local std::vector<int32_t> zeros_of_rows;
    memory.assign(count * depth, 0);
    factors_of_rows.resize(count), zeros_of_rows.resize(count);
    uint8_t* const bytes = memory.data();  // of this thread; others share in the work
    float* const factors = factors_of_rows.data();
    int32_t* const zeros = zeros_of_rows.data();
    run_parallel(kernel, context, (count + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, [=, &kernel, &by, &inputs](int64_t part) {
      for (int64_t row = part * ROWS_AT_ONCE; row < std::min(count, (part + 1) * ROWS_AT_ONCE); row++) {
        const float* const from = inputs.data + (start + row) * by.depth;
        uint8_t* const place = bytes + row * depth;
        factors[row] = PLACES.between ? kernel.level.round_between(from, by.depth, place, zeros + row) : kernel.level.round_to_bytes(from, by.depth, place);
      }
    });
    multiply_bytes(kernel, context, by, bytes, count, factors, PLACES.between ? zeros : nullptr, to + start * by.columns);
  });
}

constexpr Places PRODUCT_PLACES{3, 6, 2, 4, 5}, PER_TOKEN_PLACES{2, 3, 0, 0, 0}, PER_ROW_PLACES{2, 3, 0, 0, 0, true};

void compute_product(const Kernel& kernel, void* context) {
  const auto inputs = kernel.input<uint8_t>(context, 0);
  with_operands(kernel, context, PRODUCT_PLACES, [&](const Operands& by) {
    if (!inputs.rank || inputs.shape[inputs.rank - 1] != by.depth) throw Fault{"MatMulIntegerToFloat: unsupported shapes"};
    multiply_input<PRODUCT_PLACES>(kernel, context, by, inputs, product_output(kernel, context, inputs, by.columns));
  });
}

template <const Places& PLACES>
void compute_row_product(const Kernel& kernel, void* context) {
  const auto inputs = kernel.input<float>(context, 0);
  with_operands(kernel, context, PLACES, [&](const Operands& by) {
    if (!inputs.rank || inputs.shape[inputs.rank - 1] != by.depth) throw Fault{"a product of rows: unsupported shapes"};
    multiply_input<PLACES>(kernel, context, by, inputs, product_output(kernel, context, inputs, by.columns));
  });
}

// Pack weights that are part of the graph, and read the other operands if all are.
void make_product_of_bytes(Kernel& kernel, const void* info, const Places& places) {
  const auto weights = kernel.constant<int8_t>(info, 1);
  if (!weights.data || weights.rank != 2) return;
  kernel.packed = share(std::make_shared<const Packed>(kernel.level, weights.data, weights.shape[0], weights.shape[1]));
  for (const size_t place : {places.scales, places.bias, places.step, places.zero, places.zeros})
    if (place && kernel.has(info, place) && !kernel.constant_value(info, place)) return;
  kernel.operands = std::make_shared<const Operands>(read_operands(kernel, places, [&](size_t place, auto kind) {
    return kernel.has(info, place) ? kernel.constant<decltype(kind)>(info, place) : Kernel::Tensor<decltype(kind)>();
  }));
}

template <const Places& PLACES>
void make_product(Kernel& kernel, const void* info) { make_product_of_bytes(kernel, info, PLACES); }

void compute_float_product(const Kernel& kernel, void* context) {
  const auto inputs = kernel.input<float>(context, 0);
  const auto bias = kernel.has_bias ? kernel.input<float>(context, 2) : Kernel::Tensor<float>();
  const Packed& packed = *kernel.packed;
  if (!inputs.rank || inputs.shape[inputs.rank - 1] != packed.depth) throw Fault{"MatMul: unsupported shapes"};
  if (bias.data && bias.size() != packed.columns) throw Fault{"Gemm: not one summand for each column"};
  const FloatProduct product{inputs.data, static_cast<const float*>(packed.memory.data), bias.data,
                             product_output(kernel, context, inputs, packed.columns), packed.depth, packed.columns};
  const int64_t rows = inputs.rows(), width = kernel.level.width;
  run_panels(kernel, context, packed.columns, width, packed.depth * width * sizeof(float),
             [&](int64_t first, int64_t stop) { kernel.level.multiply_floats(product, rows, first, stop); });
}

void make_float_product(Kernel& kernel, const void* info) {
  const auto weights = kernel.constant<float>(info, 1);
  const bool transposed = kernel.integer(info, "transB", 0);
  if (weights.rank != 2 || kernel.integer(info, "transA", 0) || kernel.number(info, "alpha", 1) != 1 || kernel.number(info, "beta", 1) != 1)
    throw Fault{"MatMul: the weights are no matrix of the graph, or the product has unsupported attributes"};
  const int64_t depth = weights.shape[transposed], columns = weights.shape[!transposed];
  kernel.has_bias = kernel.inputs(info) > 2;
  kernel.packed = share(std::make_shared<const Packed>(kernel.level, weights.data, depth, columns, transposed));
}

// Places of a product's operands, where it has them, with weights of 4 bits; values and scales are at 1 and 2.
struct BlockPlaces {
  size_t zeros, order, added, bias;
};

constexpr BlockPlaces FOUR_BIT_PLACES{3, 4, 0, 5}, BLOCK_PLACES{0, 0, 3, 4};

template <const BlockPlaces& PLACES>
void compute_block_product(const Kernel& kernel, void* context) {
  const auto inputs = kernel.input<float>(context, 0);
  const auto bias = kernel.has_bias ? kernel.input<float>(context, PLACES.bias) : Kernel::Tensor<float>();
  const Packed& packed = *kernel.packed;
  if (!inputs.rank || inputs.shape[inputs.rank - 1] != packed.depth) throw Fault{"MatMulNBits: unsupported shapes"};
  if (bias.data && bias.size() != packed.columns) throw Fault{"MatMulNBits: not one summand for each column"};
  const int64_t blocks = (packed.depth + SCALE_BLOCK - 1) / SCALE_BLOCK, depth = blocks * SCALE_BLOCK, panel = kernel.level.panel;
  float* const to = product_output(kernel, context, inputs, packed.columns);
  prefetch(static_cast<const uint8_t*>(packed.memory.data), AHEAD);
  for_blocks(inputs.rows(), depth, [&](int64_t start, int64_t count) {
    thread_local std::vector<int8_t> bytes;
    thread_local std::vector<float> numbers;
    bytes.resize(count * depth), numbers.resize(2 * count * blocks);
    const BlockProduct product{bytes.data(), numbers.data(), numbers.data() + count * blocks, static_cast<const uint8_t*>(packed.memory.data),
                               bias.data, to + start * packed.columns, blocks, packed.columns, packed.factor};
    run_parallel(kernel, context, (count + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, [&, rounded = bytes.data(), steps = numbers.data()](int64_t part) {
      for (int64_t row = part * ROWS_AT_ONCE; row < std::min(count, (part + 1) * ROWS_AT_ONCE); row++)
        kernel.level.round_blocks(inputs.data + (start + row) * packed.depth, packed.depth, rounded + row * depth, steps + row * blocks,
                                  steps + (count + row) * blocks);
    });
    run_panels(kernel, context, packed.columns, panel, blocks * kernel.level.block_bytes,
               [&](int64_t first, int64_t stop) { kernel.level.multiply_blocks(product, count, first, stop); });
  });
}

template <const BlockPlaces& PLACES>
void make_block_product(Kernel& kernel, const void* info) {
  const auto values = kernel.constant<uint8_t>(info, 1);
  const auto scales = kernel.constant<float>(info, 2);
  const bool has_zeros = PLACES.zeros && kernel.has(info, PLACES.zeros);
  const auto zeros = has_zeros ? kernel.constant<uint8_t>(info, PLACES.zeros) : Kernel::Tensor<uint8_t>();
  const auto added = PLACES.added ? kernel.constant<float>(info, PLACES.added) : Kernel::Tensor<float>();
  const BlockWeights from{values.data, scales.data, zeros.data, added.data, kernel.count(info, "K"), kernel.count(info, "N"),
                          kernel.count(info, "block_size", SCALE_BLOCK)};
  kernel.has_bias = kernel.has(info, PLACES.bias);
  const bool rounds = PLACES.added || kernel.integer(info, "accuracy_level", 0) == 4;
  if (from.size % SCALE_BLOCK || kernel.integer(info, "bits", 4) != 4 || !rounds || (PLACES.order && kernel.has(info, PLACES.order)))
    throw Fault{"MatMulNBits: not blocks of weights of 4 bits whose inputs may be rounded to 8"};
  const int64_t count = from.own_blocks();
  if (values.size() != from.columns * count * from.size / 2 || scales.size() != from.columns * count ||
      (has_zeros && zeros.size() != from.columns * ((count + 1) / 2)) ||
      (PLACES.added && (from.size != SCALE_BLOCK || added.size() != from.columns * count)))
    throw Fault{"MatMulNBits: the weights are no part of the graph, or have unsupported shapes"};
  kernel.packed = share(std::make_shared<const Packed>(kernel.level, from));
}

template <void (*MAKE)(Kernel&, const void*)>
Status create_safely(const CustomOp*, const void* const* api, const void* info, void** kernel) {
  Kernel made{api, 0, 1.0f, false};
  try {
    MAKE(made, info);
    *kernel = new Kernel(made);
    return nullptr;
  } catch (const Fault& fault) {
    return made.fail(fault.text);
  } catch (...) {
    return made.fail("out of memory");
  }
}
