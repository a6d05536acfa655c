// Products of floats, included by levels.h after attend.h for each level that has fused multiply-adds.
//
// A result is summed in the order of the depth whatever the number of rows, so that a row's is the same alone and in company.

constexpr int64_t WIDTH = 2 * LANES;               // columns of a panel
constexpr int HIGHEST = LEVEL == AVX512 ? 12 : 6;  // rows that are computed together: with the sums, all registers are used
constexpr int64_t SUMMED = 256;                    // terms that are summed in a row: fewer roundings than in one long sum

// Order weights as they are read: in each panel, the columns of each row together. The last panel is padded with zeros.
void pack_floats(const float* from, int64_t depth, int64_t columns, bool transposed, float* to) {
  const int64_t row = transposed ? 1 : columns, column = transposed ? depth : 1;
  for (int64_t first = 0; first < columns; first += WIDTH)
    for (int64_t k = 0; k < depth; k++)
      for (int64_t i = first; i < first + WIDTH; i++) *to++ = i < columns ? from[k * row + i * column] : 0.0f;
}

template <int ROWS>
INLINE void multiply_floats(const FloatProduct& product, int64_t row, int64_t panel) {
  Floats sums[ROWS][2] = {};
  const int64_t first = panel * WIDTH, depth = product.depth, count = std::min(product.columns - first, WIDTH);
  const float* weights = product.weights + first * depth;
  const float* inputs = product.inputs + row * depth;
  for (int64_t start = 0; start < depth; start += SUMMED) {
    Floats total[ROWS][2] = {};
    for (int64_t k = start; k < std::min(start + SUMMED, depth); k++, weights += WIDTH) {
      const Floats left = load(weights), right = load(weights + LANES);
      prefetch(weights + AHEAD / sizeof(float), WIDTH);
#pragma GCC unroll 16  // else the sums of three or four rows are kept in memory
      for (int r = 0; r < ROWS; r++) {
        const float input = inputs[r * depth + k];
        total[r][0] += input * left;
        total[r][1] += input * right;
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) sums[r][0] += total[r][0], sums[r][1] += total[r][1];
    __asm__ volatile("" ::"r"(sums) : "memory");  // keep them out of the registers, which the loop needs
  }
  for (int r = 0; r < ROWS; r++) {
    float* to = product.to + (row + r) * product.columns + first;
    if (count == WIDTH) {
      for (int i = 0; i < 2; i++) store(to + i * LANES, product.bias ? sums[r][i] + load(product.bias + first + i * LANES) : sums[r][i]);
    } else {
      float results[WIDTH];
      std::memcpy(results, sums[r], sizeof results);
      for (int64_t i = 0; i < count; i++) to[i] = product.bias ? results[i] + product.bias[first + i] : results[i];
    }
  }
}

template <int ROWS = HIGHEST>
void multiply_floats(const FloatProduct& product, int64_t row, int64_t height, int64_t first, int64_t stop) {
  if constexpr (ROWS > 1) {
    if (height < ROWS) return multiply_floats<ROWS - 1>(product, row, height, first, stop);
  }
  for (int64_t panel = first; panel < stop; panel++) multiply_floats<ROWS>(product, row, panel);
}

// The panels from `first` to `stop` of all rows.
void multiply_all_floats(const FloatProduct& product, int64_t rows, int64_t first, int64_t stop) {
  for (int64_t row = 0; row < rows;) {
    const int64_t blocks = (rows - row + HIGHEST - 1) / HIGHEST, height = (rows - row + blocks - 1) / blocks;
    multiply_floats(product, row, height, first, stop);
    row += height;
  }
}
