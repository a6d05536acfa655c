// Attention of encoders: products of bytes for queries, keys and values, then attention within each sequence. QAttention reads bytes,
// PerRowAttention floats, each row of which it rounds by itself.
//
// Sequences are rows, of which only the first tokens may count, or they follow each other in a single row: then the lengths of all
// are given, and no token is padding. The runtime's own operators have only the former.

constexpr Places ATTENTION_PLACES{4, 2, 3, 6, 7};
constexpr size_t ATTENTION_LENGTHS = 5, PER_ROW_LENGTHS = 4;  // places

struct Sequence {
  int64_t first, count, end;  // the first token, how many there are, and the end of what may be padding
};

std::vector<Sequence> find_sequences(const Kernel::Tensor<int32_t>& lengths, int64_t rows, int64_t tokens) {
  const bool follow = lengths.data && rows == 1 && lengths.size() > 1;
  if (lengths.data && (lengths.rank != 1 || (!follow && lengths.size() != rows))) throw Fault{"attention: not one length for each row"};
  std::vector<Sequence> sequences;
  int64_t first = 0;
  for (int64_t i = 0; i < (follow ? lengths.size() : rows); i++) {
    const int64_t count = lengths.data ? lengths.data[i] : tokens;
    if (count < 0 || (follow ? first : 0) + count > tokens) throw Fault{"attention: a length exceeds the tokens"};
    sequences.push_back({first, count, first + (follow ? count : tokens)});
    first = sequences.back().end;
  }
  if (follow && first != tokens) throw Fault{"attention: the lengths are not those of all tokens"};
  return sequences;
}

void check_heads(const Kernel& kernel, int64_t columns) {
  if (columns < 1 || columns % (3 * kernel.heads) || columns > 3 * LARGEST_HEAD * kernel.heads)
    throw Fault{"attention: not queries, keys and values of 1 to 256 channels for each head"};
}

template <typename T, const Places& PLACES, size_t LENGTHS>
void compute_encoder_attention(const Kernel& kernel, void* context) {
  const auto inputs = kernel.input<T>(context, 0);
  if (inputs.rank != 3) throw Fault{"attention: the inputs have not three dimensions"};
  const auto sequences = find_sequences(kernel.input<int32_t>(context, LENGTHS), inputs.shape[0], inputs.shape[1]);
  thread_local std::vector<float> projected;  // [tokens, queries, keys and values of all heads]
  int64_t width = 0;
  with_operands(kernel, context, PLACES, [&](const Operands& by) {
    if (inputs.shape[2] != by.depth) throw Fault{"attention: unsupported shapes"};
    check_heads(kernel, by.columns);
    width = by.columns / 3;
    projected.resize(inputs.rows() * by.columns);
    multiply_input<PLACES>(kernel, context, by, inputs, projected.data());
  });
  const float* const from = projected.data();
  const int64_t heads = kernel.heads, size = width / heads;
  const int64_t shape[3] = {inputs.shape[0], inputs.shape[1], width};
  float* const result = kernel.output<float>(context, 0, shape, 3);
  if (!inputs.rows()) return;
  run_parallel(kernel, context, sequences.size() * heads, [&](int64_t part) {
    const Sequence& sequence = sequences[part / heads];
    const int64_t first = sequence.first, count = sequence.count;
    const int64_t offset = part % heads * size;
    const float* const queries = from + first * 3 * width + offset;
    const float scale = kernel.scale > 0 ? kernel.scale : 1 / std::sqrt(static_cast<float>(size));
    kernel.level.attend_sequence({queries, queries + width, queries + 2 * width, result + first * width + offset, count, size, 3 * width, width, scale});
    for (int64_t token = first + count; token < sequence.end; token++) std::memset(result + token * width + offset, 0, size * sizeof(float));
  });
}

template <const Places& PLACES>
void make_encoder_attention(Kernel& kernel, const void* info) {
  kernel.heads = kernel.count(info, "num_heads");
  kernel.scale = kernel.number(info, "scale", 0.0f);
  if (kernel.integer(info, "unidirectional", 0) || kernel.integer(info, "do_rotary", 0) || kernel.has(info, 8))
    throw Fault{"attention: unsupported attributes or inputs"};
  make_product_of_bytes(kernel, info, PLACES);
  if (kernel.operands) check_heads(kernel, kernel.operands->columns);
}
