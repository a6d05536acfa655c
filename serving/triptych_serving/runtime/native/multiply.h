// Products of unsigned bytes with signed weights, included by decoding.cpp for AVX512-VNNI, which sums four products at a time.

using Bytes = __m512i;
constexpr int VECTORS = PANEL / 16;
constexpr int TALLEST = 6, TALLEST_OF_HALVES = 14;  // rows whose sums of a panel, or of half of one, fit into the registers

constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// The lanes of a vector that hold the next `left` values.
INLINE __mmask16 first_lanes(int64_t left) { return left < 16 ? (1u << left) - 1 : 0xffff; }

// Divide a row by its largest magnitude, round the quotients to bytes, and return that magnitude.
float round_to_bytes(const float* from, int64_t size, uint8_t* to) {
  const auto mask = [size](int64_t i) { return first_lanes(size - i); };
  __m512 most = _mm512_set1_ps(SMALLEST_TOKEN);
  for (int64_t i = 0; i < size; i += 16) most = _mm512_max_ps(_mm512_abs_ps(_mm512_maskz_loadu_ps(mask(i), from + i)), most);
  const float largest = _mm512_reduce_max_ps(most);
  const __m512 by = _mm512_set1_ps(largest), step = _mm512_set1_ps(TOKEN_STEP);
  for (int64_t i = 0; i < size; i += 16) {
    const __m512 steps = _mm512_div_ps(_mm512_div_ps(_mm512_maskz_loadu_ps(mask(i), from + i), by), step);
    const Bytes rounded = _mm512_add_epi32(_mm512_cvtps_epi32(steps), _mm512_set1_epi32(TOKEN_ZERO));
    _mm_mask_storeu_epi8(to + i, mask(i), _mm512_cvtepi32_epi8(rounded));
  }
  return largest;
}

// Add two rows, normalise the sum, and round the result to bytes.
void norm_to_bytes(const Norm& norm, const float* x, const float* y, float* sum, uint8_t* to) {
  const int64_t size = norm.size;
  const auto mask = [size](int64_t i) { return first_lanes(size - i); };
  __m512 total = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < size; i += 16) {
    const __m512 both = _mm512_add_ps(_mm512_maskz_loadu_ps(mask(i), x + i), _mm512_maskz_loadu_ps(mask(i), y + i));
    _mm512_mask_storeu_ps(sum + i, mask(i), both);
    total = _mm512_add_ps(total, both);
  }
  const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(total) / size);
  for (int64_t i = 0; i < size; i += 16) {
    const __m512 apart = _mm512_maskz_sub_ps(mask(i), _mm512_maskz_loadu_ps(mask(i), sum + i), mean);
    squares = _mm512_fmadd_ps(apart, apart, squares);
  }
  const __m512 by = _mm512_set1_ps(1.0f / std::sqrt(_mm512_reduce_add_ps(squares) / size + norm.epsilon));
  const __m512 step = _mm512_set1_ps(norm.step);
  for (int64_t i = 0; i < size; i += 16) {
    const __m512 even = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask(i), sum + i), mean), by);
    const __m512 weight = _mm512_maskz_loadu_ps(mask(i), norm.weights + i), bias = _mm512_maskz_loadu_ps(mask(i), norm.biases + i);
    const Bytes steps = _mm512_cvtps_epi32(_mm512_div_ps(_mm512_fmadd_ps(even, weight, bias), step));
    const Bytes bytes = _mm512_max_epi32(_mm512_add_epi32(steps, _mm512_set1_epi32(norm.zero)), _mm512_setzero_si512());
    _mm_mask_storeu_epi8(to + i, mask(i), _mm512_cvtusepi32_epi8(bytes));
  }
}

// Order weights [depth, columns] as they are read: in each panel of columns, four rows of each column together.
void pack(const int8_t* from, int64_t depth, int64_t columns, int8_t* to, int32_t* sums) {
  const Bytes ones = _mm512_set1_epi8(1);
  for (int64_t first = 0; first < columns; first += 16) {
    const __mmask16 mask = first_lanes(columns - first);
    int8_t* place = to + first / PANEL * PANEL * rounded(depth) + first % PANEL * 4;
    Bytes total = _mm512_setzero_si512();
    for (int64_t k = 0; k < depth; k += 4, place += 4 * PANEL) {
      Bytes four = _mm512_setzero_si512();
      for (int64_t i = 0; i < 4 && k + i < depth; i++) {
        const Bytes row = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, from + (k + i) * columns + first));
        four = _mm512_or_si512(four, _mm512_sllv_epi32(row, _mm512_set1_epi32(8 * i)));
      }
      _mm512_storeu_si512(place, four);
      total = _mm512_dpbusd_epi32(total, ones, four);
    }
    _mm512_mask_storeu_epi32(sums + first, mask, total);
  }
}

// Add to `sum` the products of four inputs, the same for each lane, and four weights of each lane. The intrinsic would cost GCC 12
// copies of all sums before and after each term.
INLINE void add_products(Bytes& sum, Bytes inputs, Bytes weights) { __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(inputs), "v"(weights)); }

// ROWS rows times COUNT vectors of one panel, from vector `start` on.
template <int ROWS, int COUNT>
INLINE void multiply(const Product& product, int64_t row, int64_t panel, int start) {
  Bytes total[ROWS][COUNT];
  const int64_t first = panel * PANEL + 16 * start, left = product.columns - first, width = 4 * PANEL;
  const int8_t* weights = product.weights + panel * PANEL * product.depth + 64 * start;
  const uint8_t* inputs = product.inputs + row * product.depth;
  __mmask16 masks[COUNT];
#pragma GCC unroll 4  // here and below: else the sums are kept in memory
  for (int i = 0; i < COUNT; i++) {
    masks[i] = left > 16 * i ? first_lanes(left - 16 * i) : 0;
    const Bytes sums = _mm512_maskz_loadu_epi32(masks[i], product.sums + first + 16 * i);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) total[r][i] = _mm512_mullo_epi32(sums, _mm512_set1_epi32(-product.zero));
  }
  for (int64_t k = 0; k < product.depth; k += 4, weights += width) {
    Bytes four[COUNT];
#pragma GCC unroll 4
    for (int i = 0; i < COUNT; i++) {
      four[i] = _mm512_loadu_si512(weights + 64 * i);
      __builtin_prefetch(weights + AHEAD + 64 * i);
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
      int32_t input;
      std::memcpy(&input, inputs + r * product.depth + k, sizeof input);
#pragma GCC unroll 4
      for (int i = 0; i < COUNT; i++) add_products(total[r][i], _mm512_set1_epi32(input), four[i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < COUNT; i++) {
    const int64_t place = first + 16 * i;
    const __m512 scale = _mm512_maskz_loadu_ps(masks[i], product.scales + place);
    const __m512 bias = product.bias ? _mm512_maskz_loadu_ps(masks[i], product.bias + place) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
      __m512 result = _mm512_cvtepi32_ps(total[r][i]);
      if (product.factors) {  // rounded as often as in the runtime's own operators: no fused operation
        const __m512 factor = _mm512_set1_ps(product.factors[row + r]);
        result = _mm512_mul_round_ps(_mm512_mul_round_ps(result, scale, NEAREST), factor, NEAREST);
        result = _mm512_add_round_ps(result, bias, NEAREST);
      } else {
        result = _mm512_fmadd_ps(result, scale, bias);
      }
      _mm512_mask_storeu_ps(product.to + (row + r) * product.columns + place, masks[i], result);
    }
  }
}

// The panels from `first` to `stop` of `height` rows, of which there are at most ROWS.
template <int ROWS, int COUNT>
void multiply_rows(const Product& product, int64_t row, int64_t height, int64_t first, int64_t stop) {
  if constexpr (ROWS > 1)
    if (height < ROWS) return multiply_rows<ROWS - 1, COUNT>(product, row, height, first, stop);
  for (int64_t panel = first; panel < stop; panel++)
    for (int start = 0; start < VECTORS; start += COUNT) multiply<ROWS, COUNT>(product, row, panel, start);
}

// The panels from `first` to `stop` of all rows. As many rows as fit are computed together, so that weights are read seldom.
void multiply_all(const Product& product, int64_t rows, int64_t first, int64_t stop) {
  if (rows > TALLEST && rows <= TALLEST_OF_HALVES) return multiply_rows<TALLEST_OF_HALVES, VECTORS / 2>(product, 0, rows, first, stop);
  for (int64_t row = 0; row < rows;) {
    const int64_t blocks = (rows - row + TALLEST - 1) / TALLEST, height = (rows - row + blocks - 1) / blocks;
    multiply_rows<TALLEST, VECTORS>(product, row, height, first, stop);
    row += height;
  }
}
