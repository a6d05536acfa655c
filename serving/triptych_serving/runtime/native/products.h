// The operators MatMulIntegerToFloat, PerRowMatMul, PerRowGemm, PerTokenMatMul, PerTokenGemm, MatMulNBits, BlockMatMul, MatMul and Gemm.

constexpr int64_t PART = 1 << 17;  // bytes of weights that a thread takes at a time: they stay in the second cache for all rows
constexpr int64_t BLOCK_OF_INPUTS = 1 << 19;  // bytes of rows that are multiplied together: they stay there, too
constexpr int64_t ROWS_AT_ONCE = 16;          // that a thread rounds at a time

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
