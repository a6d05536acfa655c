// Attention among all tokens of a sequence, included by levels.h after attend.h and select.h for AVX2 and AVX-512: two products of
// matrices with a softmax between them.

constexpr int TALL = 6;                      // rows that are multiplied together
constexpr int WIDE = LEVEL == AVX512 ? 4 : 2;  // by so many vectors: with the operands, nearly all registers are used

// One operand or result: numbers, and the distance from row to row.
template <typename T>
struct Matrix {
  T* data;
  int64_t distance;

  INLINE Matrix from(int64_t column) const { return {data + column, distance}; }
};

// The product of ROWS rows and COUNT vectors of columns, of which `columns` are wanted.
template <int ROWS, int COUNT>
INLINE void multiply_block(Matrix<const float> left, Matrix<const float> right, int64_t depth, Matrix<float> to, int64_t columns) {
  Floats sums[ROWS][COUNT] = {};
  for (int64_t k = 0; k < depth; k++) {
    Floats vectors[COUNT];
#pragma GCC unroll 4
    for (int i = 0; i < COUNT; i++) vectors[i] = load(right.data + k * right.distance + i * LANES);
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; r++) {
      const float factor = left.data[r * left.distance + k];
#pragma GCC unroll 4
      for (int i = 0; i < COUNT; i++) sums[r][i] += factor * vectors[i];
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
    for (int i = 0; i < COUNT; i++) store_some(to.data + r * to.distance + i * LANES, sums[r][i], columns - i * LANES);
}

template <int ROWS, int COUNT = WIDE>
void multiply_columns(Matrix<const float> left, Matrix<const float> right, int64_t depth, Matrix<float> to, int64_t columns) {
  for (; columns > (COUNT - 1) * LANES; columns -= COUNT * LANES, right = right.from(COUNT * LANES), to = to.from(COUNT * LANES))
    multiply_block<ROWS, COUNT>(left, right, depth, to, columns);
  if constexpr (COUNT > 1)
    if (columns > 0) multiply_columns<ROWS, COUNT - 1>(left, right, depth, to, columns);
}

// Multiply up to TALL rows. Up to LANES - 1 numbers after the right operand's columns are read.
template <int ROWS = TALL>
void multiply_some(int64_t rows, Matrix<const float> left, Matrix<const float> right, int64_t depth, Matrix<float> to, int64_t columns) {
  if constexpr (ROWS > 1)
    if (rows < ROWS) return multiply_some<ROWS - 1>(rows, left, right, depth, to, columns);
  multiply_columns<ROWS>(left, right, depth, to, columns);
}

void attend_sequence(const SequenceHead& head) {
  const int64_t count = head.count, size = head.size, whole = round_up(size, LANES);
  const int64_t width = round_up(count, LANES) + LANES;  // no power of two: such rows would have few places in the first cache
  thread_local std::vector<float> keys, values, scores;  // copies that are read in order; of keys, a row for each channel
  keys.resize(size * width), values.resize(count * whole), scores.resize(TALL * width);
  for (int64_t t = 0; t < count; t++) {
    for (int64_t i = 0; i < size; i++) keys[i * width + t] = head.keys[t * head.distance + i];
    std::memcpy(values.data() + t * whole, head.values + t * head.distance, size * sizeof(float));
  }
  for (int64_t first = 0; first < count; first += TALL) {
    const int64_t rows = std::min<int64_t>(TALL, count - first);
    float* const contexts = head.contexts + first * head.width;
    multiply_some(rows, {head.queries + first * head.distance, head.distance}, {keys.data(), width}, size, {scores.data(), width}, count);
    float shares[TALL];
    for (int64_t r = 0; r < rows; r++) shares[r] = softmax(scores.data() + r * width, count, head.scale);
    multiply_some(rows, {scores.data(), width}, {values.data(), whole}, count, {contexts, head.width}, size);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t i = 0; i < size; i++) contexts[r * head.width + i] *= shares[r];
  }
}
