// Products of floats with weights of 4 bits, included by levels.h after multiply.h for the same levels. Each block of a row's inputs is
// divided by its largest magnitude and rounded to bytes; each block of a column has a scale and an offset of 16 bits. In a panel, a block
// has the scales and offsets of all columns, then bytes with a weight of its first half and one of its second.

constexpr int64_t BLOCK_BYTES = PANEL * (2 * sizeof(uint16_t) + SCALE_BLOCK / 2);
constexpr int TALLEST_OF_BLOCKS = LEVEL == AVX512 ? 8 : 4;  // rows that are computed together: more than 4 with half a panel

INLINE Floats load_halves(const void* from) {
#if LEVEL == AVX512
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
#else
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
#endif
}

// Pack weights with scales and offsets times `factor`; what pads the last panel is left as it is.
void pack_blocks(const BlockWeights& from, float factor, uint8_t* to) {
  const int64_t rounded = (from.columns + PANEL - 1) / PANEL * PANEL;
  for (int64_t first = 0; first < rounded; first += PANEL)
    for (int64_t block = 0; block < from.blocks(); block++, to += BLOCK_BYTES)
      for (int64_t i = 0; i < std::min(PANEL, from.columns - first); i++) {
        const float scale = from.scale(first + i, block) * factor;
        const uint16_t halves[2] = {_cvtss_sh(scale, 0), _cvtss_sh(from.offset(first + i, block) * factor, 0)};
        for (int j = 0; j < 2; j++) std::memcpy(to + (j * PANEL + i) * sizeof *halves, halves + j, sizeof *halves);
        uint8_t values[SCALE_BLOCK / 2], *const bytes = to + 2 * sizeof *halves * PANEL;
        std::memcpy(values, from.block_of(first + i, block), sizeof values);
        const auto weight = [&values](int64_t k) { return values[k / 2] >> k % 2 * 4 & 15; };
        for (int64_t k = 0; k < SCALE_BLOCK / 2; k++) bytes[(k / 4 * PANEL + i) * 4 + k % 4] = weight(k) | weight(k + SCALE_BLOCK / 2) << 4;
      }
}

// Round the blocks of a row; set what each byte stands for, and the sum of each block.
void round_blocks(const float* from, int64_t size, int8_t* to, float* steps, float* sums) {
  for (int64_t first = 0; first < size; first += SCALE_BLOCK, steps++, sums++) {
    Floats values[SCALE_BLOCK / LANES], most{};
    for (int i = 0; i < SCALE_BLOCK / LANES; i++) {
      const int64_t at = first + i * LANES;
      values[i] = at < size ? load_some(from + at, size - at) : Floats{};
      most = greater(greater(values[i], -values[i]), most);
    }
    const float by = largest(most), inverse = by > FLT_MIN * 127 ? 127 / by : 0;
    Unsigned sum{};
    for (int i = 0; i < SCALE_BLOCK / LANES; i++) {
      using Bytes = int8_t __attribute__((vector_size(LANES)));
      const Ints rounded = nearest(values[i] * inverse);
      const Bytes bytes = __builtin_convertvector(rounded, Bytes);
      std::memcpy(to + first + i * LANES, &bytes, LANES);
      sum += reinterpret_cast<Unsigned>(rounded);
    }
    *steps = by / 127;
    uint32_t all = 0;
    for (int i = 0; i < LANES; i++) all += sum[i];
    *sums = static_cast<int32_t>(all) * *steps;
  }
}

// Add products of four weights of each lane, below 16, with four inputs; without VNNI to sums of 16 bits, for which a block is small enough.
INLINE void add_small_products(Ints& sum, Ints weights, Ints inputs) {
#if VNNI
  add_products(sum, weights, inputs);
#elif LEVEL == AVX512
  const __m512i pairs = _mm512_maddubs_epi16(reinterpret_cast<__m512i>(weights), reinterpret_cast<__m512i>(inputs));
  sum = reinterpret_cast<Ints>(_mm512_add_epi16(reinterpret_cast<__m512i>(sum), pairs));
#else
  const __m256i pairs = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(weights), reinterpret_cast<__m256i>(inputs));
  sum = reinterpret_cast<Ints>(_mm256_add_epi16(reinterpret_cast<__m256i>(sum), pairs));
#endif
}

INLINE Floats sum_of_products(Ints sum) {
#if VNNI
#elif LEVEL == AVX512
  sum = reinterpret_cast<Ints>(_mm512_madd_epi16(reinterpret_cast<__m512i>(sum), _mm512_set1_epi16(1)));
#else
  sum = reinterpret_cast<Ints>(_mm256_madd_epi16(reinterpret_cast<__m256i>(sum), _mm256_set1_epi16(1)));
#endif
  return __builtin_convertvector(sum, Floats);
}

// ROWS rows times COUNT vectors of one panel, from vector `start` on.
template <int ROWS, int COUNT>
INLINE void multiply_blocks(const BlockProduct& product, int64_t row, int64_t panel, int start) {
  Floats results[ROWS][COUNT] = {};
  const int64_t depth = product.blocks * SCALE_BLOCK, first = panel * PANEL + LANES * start;
  const uint8_t* place = product.weights + panel * product.blocks * BLOCK_BYTES;
  for (int64_t block = 0; block < product.blocks; block++, place += BLOCK_BYTES) {
    const uint8_t *const scales = place + start * LANES * 2, *weights = place + 4 * PANEL + start * LANES * 4;
    const int8_t* const inputs = product.inputs + row * depth + block * SCALE_BLOCK;
    Ints totals[ROWS][COUNT] = {};
    if (start == 0) prefetch(place + AHEAD, 4 * PANEL);
#pragma GCC unroll 4  // here and below: else the sums are kept in memory
    for (int k = 0; k < SCALE_BLOCK / 2; k += 4, weights += 4 * PANEL) {
#pragma GCC unroll 4
      for (int i = 0; i < COUNT; i++) {
        Ints both;
        std::memcpy(&both, weights + 4 * LANES * i, sizeof both);
        if (i % (16 / LANES) == 0) __builtin_prefetch(weights + AHEAD + 4 * LANES * i);
        const Ints low = both & 0x0f0f0f0f, high = both >> 4 & 0x0f0f0f0f;
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
          int32_t fours[2];
          std::memcpy(fours, inputs + r * depth + k, 4);
          std::memcpy(fours + 1, inputs + r * depth + k + SCALE_BLOCK / 2, 4);
          add_small_products(totals[r][i], low, Ints{} + fours[0]);
          add_small_products(totals[r][i], high, Ints{} + fours[1]);
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < COUNT; i++) {
      const Floats scale = load_halves(scales + 2 * LANES * i), offset = load_halves(scales + 2 * PANEL + 2 * LANES * i);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        const int64_t of_row = (row + r) * product.blocks + block;
        results[r][i] += sum_of_products(totals[r][i]) * product.steps[of_row] * scale;
        results[r][i] -= offset * product.sums[of_row];
      }
    }
    if constexpr (ROWS * COUNT > 8) __asm__ volatile("" ::"r"(results) : "memory");  // keep them out of the registers, which the sums need
  }
#pragma GCC unroll 4
  for (int i = 0; i < COUNT; i++) {
    const int64_t column = first + LANES * i, left = product.columns - column;
    const Floats bias = product.bias && left > 0 ? load_some(product.bias + column, left) : Floats{};
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
      store_some(product.to + (row + r) * product.columns + column, results[r][i] * product.factor + bias, left);
  }
}

template <int ROWS>
void multiply_rows_of_blocks(const BlockProduct& product, int64_t row, int64_t height, int64_t first, int64_t stop) {
  if constexpr (ROWS > 1)
    if (height < ROWS) return multiply_rows_of_blocks<ROWS - 1>(product, row, height, first, stop);
  constexpr int COUNT = ROWS > 4 ? TOGETHER / 2 : TOGETHER;
  for (int64_t panel = first; panel < stop; panel++)
    for (int start = 0; start < TOGETHER; start += COUNT) multiply_blocks<ROWS, COUNT>(product, row, panel, start);
}

// The panels from `first` to `stop` of all rows.
void multiply_all_blocks(const BlockProduct& product, int64_t rows, int64_t first, int64_t stop) {
  for (int64_t row = 0; row < rows;) {
    const int64_t parts = (rows - row + TALLEST_OF_BLOCKS - 1) / TALLEST_OF_BLOCKS, height = (rows - row + parts - 1) / parts;
    multiply_rows_of_blocks<TALLEST_OF_BLOCKS>(product, row, height, first, stop);
    row += height;
  }
}

constexpr Level LEVEL_OF_KERNELS{attend_any<float>, attend_any<int8_t>, attend_block<float>, attend_block<int8_t>, log_softmax, top_k, draw, WIDTH, pack_floats, multiply_all_floats,
                             PANEL, VNNI, multiply_all, round_to_bytes, round_between, norm_to_bytes, attend_sequence,
                             BLOCK_BYTES, pack_blocks, round_blocks, multiply_all_blocks};
