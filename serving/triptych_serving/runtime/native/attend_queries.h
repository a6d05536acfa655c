// The arithmetic of causal attention, included by levels.h after attend.h and select.h, once for each level of instructions.

constexpr int QUERIES = LEVEL == AVX512 ? 4 : 2;  // that read the keys and values together: as many as fit into registers

// cap * tanh(x / cap), within 1e-6 of the cap; excluded scores stay.
INLINE Floats limited(Floats x, float cap) {
  const Floats less = exponential((x < 0.0f ? x : -x) * (2.0f / cap));
  const Floats magnitude = cap * (1.0f - less) / (1.0f + less);
  return x < -1e30f ? x : x < 0.0f ? -magnitude : magnitude;
}

// Channels of a key or value, from `channel` on.
INLINE Floats load_cached(const float* from, int64_t, int64_t channel) { return load(from + channel); }

INLINE Floats load_cached(const int8_t* from, int64_t size, int64_t channel) {
  float step;
  std::memcpy(&step, from + size + channel / SCALED * sizeof step, sizeof step);
  return load(from + channel) * step;
}

// The sums of LANES vectors, one in each lane. A step adds the upper half of what is left of a vector to its lower half, for two vectors at
// once, so the order in which a vector is summed does not depend on its place among the others.
INLINE Floats sum_each(const Floats (&vectors)[LANES]) {
#if LEVEL == PLAIN
  return Floats{sum(vectors[0]), sum(vectors[1]), sum(vectors[2]), sum(vectors[3])};
#else
  constexpr int PARTS = LANES / 4;  // of four lanes: the last two steps stay within each
  Floats x[LANES];
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++) x[i] = vectors[i % PARTS * 4 + i / PARTS];
#if LEVEL == AVX512
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) x[i] = _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0x44) + _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0xee);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) x[i] = _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0x88) + _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0xdd);
#define SHUFFLE _mm512_shuffle_ps
#else
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) x[i] = _mm256_permute2f128_ps(x[2 * i], x[2 * i + 1], 0x20) + _mm256_permute2f128_ps(x[2 * i], x[2 * i + 1], 0x31);
#define SHUFFLE _mm256_shuffle_ps
#endif
  for (int i = 0; i < 2; i++) x[i] = SHUFFLE(x[2 * i], x[2 * i + 1], 0x44) + SHUFFLE(x[2 * i], x[2 * i + 1], 0xee);
  return SHUFFLE(x[0], x[1], 0x88) + SHUFFLE(x[0], x[1], 0xdd);
#undef SHUFFLE
#endif
}

// COUNT queries of a block, from its query `first` on. N: vectors of a head. Neither changes a bit of the results.
template <typename T, int N, int COUNT>
INLINE void attend_queries(const Block<T>& block, int64_t first) {
  const int64_t size = N ? N * LANES : block.size, distance = cached_size<T>(size), vectors = N ? N : size / LANES;
  constexpr int MOST = N ? N : LARGEST_HEAD / LANES;
  constexpr int KEYS = COUNT == 1 ? LANES : COUNT == 2 ? LANES / 2 : LANES / 4;  // that are read together
  Floats query[COUNT][MOST], context[COUNT][MOST] = {};
  float share[COUNT];
  float* scores[COUNT];
  int64_t begin[COUNT], end[COUNT], start = INT64_MAX, stop = 0;
  for (int q = 0; q < COUNT; q++) {
    const int64_t last = block.place_of(first + q);
    begin[q] = block.window && last >= block.window ? last - block.window + 1 : 0;
    end[q] = last + 1;
    start = std::min(start, begin[q] / LANES * LANES);
    stop = std::max(stop, end[q]);
    scores[q] = block.scores + q * block.stride;
    for (int64_t i = 0; i < vectors; i++) query[q][i] = load(block.queries + (first + q) * size + i * LANES) * block.scale;
  }
  for (int64_t t = start; t < stop; t += KEYS) {
    const T* keys[KEYS];
    Floats products[LANES] = {};
    for (int k = 0; k < KEYS; k++) {
      const int64_t place = std::min(t + k, stop - 1);
      keys[k] = block.keys + place * distance;
      prefetch(block.values + place * distance, distance);
    }
    for (int64_t i = 0; i < vectors; i++) {
#pragma GCC unroll 16
      for (int k = 0; k < KEYS; k++) {
        const Floats key = load_cached(keys[k], size, i * LANES);
#pragma GCC unroll 4
        for (int q = 0; q < COUNT; q++) products[q * KEYS + k] += query[q][i] * key;
      }
    }
    float sums[LANES];
    store(sums, sum_each(products));
    for (int q = 0; q < COUNT; q++) std::memcpy(scores[q] + t, sums + q * KEYS, KEYS * sizeof(float));
  }
  for (int q = 0; q < COUNT; q++) {
    std::fill(scores[q] + start, scores[q] + begin[q], -FLT_MAX);
    std::fill(scores[q] + end[q], scores[q] + stop, -FLT_MAX);
    for (int64_t t = start; t < stop && block.cap > 0.0f; t += LANES) store(scores[q] + t, limited(load(scores[q] + t), block.cap));
    share[q] = softmax(scores[q] + start, stop - start, 1.0f);
  }
  for (int64_t t = start; t < stop; t++) {
    prefetch(block.next_keys + t * distance, distance);
    for (int64_t i = 0; i < vectors; i++) {
      const Floats value = load_cached(block.values + t * distance, size, i * LANES);
      for (int q = 0; q < COUNT; q++) context[q][i] += scores[q][t] * value;
    }
  }
  for (int q = 0; q < COUNT; q++)
    for (int64_t i = 0; i < vectors; i++) store(block.context_of(first + q) + i * LANES, context[q][i] * share[q]);
}

template <typename T, int N>
INLINE void attend_each(const Block<T>& block) {
  for (int64_t first = 0; first < block.count;) {
    const int64_t left = block.count - first, parts = (left + QUERIES - 1) / QUERIES, some = (left + parts - 1) / parts;
    switch (some) {
      case 1: attend_queries<T, N, 1>(block, first); break;
      case 2: attend_queries<T, N, 2>(block, first); break;
      case 3: attend_queries<T, N, 3>(block, first); break;
      default: attend_queries<T, N, MOST_AT_ONCE>(block, first);
    }
    first += some;
  }
}

template <typename T>
void attend_block(const Block<T>& block) {
  switch (block.size) {
    case 32: return attend_each<T, 32 / LANES>(block);
    case 64: return attend_each<T, 64 / LANES>(block);
    case 128: return attend_each<T, 128 / LANES>(block);
    default: return attend_each<T, 0>(block);
  }
}
