// Products of unsigned bytes with signed weights, included by levels.h after attend.h: for AVX2 and AVX-512, each with VNNI, which
// sums four products at a time, and without, where two products are summed in 16 bits and weights have 7 bits (products.h).

constexpr int TOGETHER = LEVEL == AVX512 ? 4 : 2;  // vectors of a panel that are computed together
constexpr int64_t PANEL = TOGETHER * LANES;        // columns
constexpr int TALLEST = 6;                         // rows whose sums of a panel fit into the registers
constexpr int TALLEST_OF_HALVES = VNNI && LEVEL == AVX512 ? 14 : 0;  // the same of half of one; 0: no faster than fewer rows

INLINE Ints nearest(Floats x) {
#if LEVEL == AVX512
  return reinterpret_cast<Ints>(_mm512_cvtps_epi32(x));
#else
  return reinterpret_cast<Ints>(_mm256_cvtps_epi32(x));
#endif
}

INLINE void store_bytes(uint8_t* to, Ints values, int64_t left) {
  using Bytes = uint8_t __attribute__((vector_size(LANES)));
  const Bytes bytes = __builtin_convertvector(values < 0 ? Ints{} : values > 255 ? Ints{} + 255 : values, Bytes);
  if (left >= LANES) return static_cast<void>(std::memcpy(to, &bytes, LANES));
  std::memcpy(to, &bytes, left);
}

// Divide a row by its largest magnitude, round the quotients to bytes, and return that magnitude.
float round_to_bytes(const float* from, int64_t size, uint8_t* to) {
  Floats most = Floats{} + SMALLEST_TOKEN;
  for (int64_t i = 0; i < size; i += LANES) {
    const Floats values = load_some(from + i, size - i);
    most = greater(greater(values, -values), most);
  }
  const float by = largest(most);
  for (int64_t i = 0; i < size; i += LANES)
    store_bytes(to + i, nearest(load_some(from + i, size - i) / by / TOKEN_STEP) + TOKEN_ZERO, size - i);
  return by;
}

// Round a row to bytes between its smallest and largest value, of which one may be 0; return the step, and set what stands for 0.
float round_between(const float* from, int64_t size, uint8_t* to, int32_t* zero) {
  Floats most{}, least{};
  for (int64_t i = 0; i < size; i += LANES) {
    const Floats values = load_some(from + i, size - i);
    most = greater(values, most), least = greater(-values, least);
  }
  const float high = largest(most), low = largest(least);  // the latter without its sign
  const float step = std::max((high + low) / MOST_BYTES, SMALLEST_TOKEN), place = std::nearbyint(std::min(MOST_BYTES, low / step));
  for (int64_t i = 0; i < size; i += LANES) store_bytes(to + i, nearest(load_some(from + i, size - i) / step + place), size - i);
  *zero = static_cast<int32_t>(place);
  return step;
}

// Add two rows, normalise the sum, and round the result to bytes.
void norm_to_bytes(const Norm& norm, const float* x, const float* y, float* total, uint8_t* to) {
  const int64_t size = norm.size;
  Floats all{}, squares{};
  for (int64_t i = 0; i < size; i += LANES) {
    const Floats both = load_some(x + i, size - i) + load_some(y + i, size - i);
    store_some(total + i, both, size - i);
    all += both;
  }
  const Floats mean = Floats{} + sum(all) / size;
  for (int64_t i = 0; i < size; i += LANES) {
    const Floats apart = load_some(total + i, size - i, mean) - mean;
    squares += apart * apart;
  }
  const float by = 1.0f / std::sqrt(sum(squares) / size + norm.epsilon);
  for (int64_t i = 0; i < size; i += LANES) {
    const Floats even = (load_some(total + i, size - i) - mean) * by;
    const Floats result = even * load_some(norm.weights + i, size - i) + load_some(norm.biases + i, size - i);
    store_bytes(to + i, nearest(result / norm.step) + norm.zero, size - i);
  }
}

// Add to `sum` the products of four inputs, the same for each lane, and four weights of each lane. The intrinsic for VNNI would cost
// GCC 12 copies of all sums before and after each term.
INLINE void add_products(Ints& sum, Ints inputs, Ints weights) {
#if VNNI && LEVEL == AVX512
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(inputs), "v"(weights));
#elif VNNI
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(inputs), "x"(weights));
#elif LEVEL == AVX512
  const __m512i pairs = _mm512_maddubs_epi16(reinterpret_cast<__m512i>(inputs), reinterpret_cast<__m512i>(weights));
  sum += reinterpret_cast<Ints>(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#else
  const __m256i pairs = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(inputs), reinterpret_cast<__m256i>(weights));
  sum += reinterpret_cast<Ints>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}

// What a vector of columns has for its sums to become results.
struct Columns {
  Ints sums;
  Floats scale, bias{};
  int64_t left;  // columns from here on

  INLINE Columns(const Product& product, int64_t first) : scale(load(product.scales + first)), left(product.columns - first) {
    std::memcpy(&sums, product.sums + first, sizeof sums);
    if (product.bias) bias = load(product.bias + first);
  }

  // Store the results of a row, whose factor may be null.
  INLINE void finish(Ints total, const float* factor, float* to) const {
    Floats result = __builtin_convertvector(total, Floats) * scale;
    if (factor) result *= *factor;
    __asm__("" : "+v"(result));  // rounded as often as in the runtime's own operators: no fused operation
    store_some(to, result + bias, left);
  }
};

INLINE int32_t zero_of(const Product& product, int64_t row) { return product.zeros ? product.zeros[row] : product.zero; }
INLINE const float* factor_of(const Product& product, int64_t row) { return product.factors ? product.factors + row : nullptr; }

// Fetch what the columns of a panel have: weights follow each other in memory, these do not.
INLINE void fetch_columns(const Product& product, int64_t first) {
  prefetch(product.sums + first, PANEL);
  prefetch(product.scales + first, PANEL);
  if (product.bias) prefetch(product.bias + first, PANEL);
}

// ROWS rows times COUNT vectors of one panel, from vector `start` on.
template <int ROWS, int COUNT>
INLINE void multiply(const Product& product, int64_t row, int64_t panel, int start) {
  Ints total[ROWS][COUNT];
  const int64_t first = panel * PANEL + LANES * start;
  const int8_t* weights = product.weights + panel * PANEL * product.depth * product.parts + 4 * LANES * start;
#pragma GCC unroll 4  // here and below: else the sums are kept in memory
  for (int i = 0; i < COUNT; i++) {
    const Columns columns(product, first + LANES * i);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) total[r][i] = columns.sums * -zero_of(product, row + r);
  }
  if (start + COUNT == TOGETHER) fetch_columns(product, first + LANES * COUNT);
  constexpr int GROUP = 4, GROUPS = (ROWS + GROUP - 1) / GROUP;  // rows with one pointer: as many as rows would not fit into registers
  for (int64_t part = 0; part < product.parts; part++) {
    const uint8_t* inputs[GROUPS];
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS; g++) inputs[g] = product.inputs + (row + g * GROUP) * product.depth;
    for (int64_t k = 0; k < product.depth; k += 4, weights += 4 * PANEL) {
#pragma GCC unroll 4
      for (int g = 0; g < GROUPS; g++) __asm__("" : "+r"(inputs[g]));  // else the compiler makes pointers to all rows
      Ints four[COUNT];
#pragma GCC unroll 4
      for (int i = 0; i < COUNT; i++) {
        std::memcpy(&four[i], weights + 4 * LANES * i, sizeof four[i]);
        if (i % (16 / LANES) == 0) __builtin_prefetch(weights + AHEAD + 4 * LANES * i);
      }
#pragma GCC unroll 16
      for (int r = 0; r < ROWS; r++) {
        int32_t input;
        std::memcpy(&input, inputs[r / GROUP] + r % GROUP * product.depth, sizeof input);
#pragma GCC unroll 4
        for (int i = 0; i < COUNT; i++) add_products(total[r][i], Ints{} + input, four[i]);
      }
#pragma GCC unroll 4
      for (int g = 0; g < GROUPS; g++) inputs[g] += 4;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < COUNT; i++) {
    const Columns columns(product, first + LANES * i);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
      columns.finish(total[r][i], factor_of(product, row + r), product.to + (row + r) * product.columns + first + LANES * i);
  }
}

// The panels from `first` to `stop` of `height` rows, of which there are at most ROWS.
template <int ROWS, int COUNT>
void multiply_rows(const Product& product, int64_t row, int64_t height, int64_t first, int64_t stop) {
  if constexpr (ROWS > 1)
    if (height < ROWS) return multiply_rows<ROWS - 1, COUNT>(product, row, height, first, stop);
  for (int64_t panel = first; panel < stop; panel++)
    for (int start = 0; start < TOGETHER; start += COUNT) multiply<ROWS, COUNT>(product, row, panel, start);
}

// The panels from `first` to `stop` of all rows. As many rows as fit are computed together, so that weights are read seldom.
void multiply_all(const Product& product, int64_t rows, int64_t first, int64_t stop) {
  if constexpr (TALLEST_OF_HALVES > 0)
    if (rows > TALLEST && rows <= TALLEST_OF_HALVES) return multiply_rows<TALLEST_OF_HALVES, TOGETHER / 2>(product, 0, rows, first, stop);
  for (int64_t row = 0; row < rows;) {
    const int64_t blocks = (rows - row + TALLEST - 1) / TALLEST, height = (rows - row + blocks - 1) / blocks;
    multiply_rows<TALLEST, TOGETHER>(product, row, height, first, stop);
    row += height;
  }
}
