// The arithmetic of causal attention, included by decoding.cpp after attend.h, once for each level of instructions.

constexpr int QUERIES = LEVEL == AVX512 ? 4 : 2;  // that read the keys and values together: as many as fit into registers

// cap * tanh(x / cap), within 1e-6 of the cap; excluded scores stay.
INLINE Floats limited(Floats x, float cap) {
  const Floats less = exponential((x < 0.0f ? x : -x) * (2.0f / cap));
  const Floats magnitude = cap * (1.0f - less) / (1.0f + less);
  return x < -1e30f ? x : x < 0.0f ? -magnitude : magnitude;
}

// COUNT queries of a block, from its query `first` on. N: vectors of a head. Neither changes a bit of the results.
template <int N, int COUNT>
INLINE void attend_queries(const Block& block, int64_t first) {
  const int64_t size = N ? N * LANES : block.size, vectors = N ? N : size / LANES;
  constexpr int MOST = N ? N : LARGEST_HEAD / LANES;
  Floats query[COUNT][MOST], context[COUNT][MOST] = {};
  float largest[COUNT], share[COUNT];
  float* scores[COUNT];
  int64_t begin[COUNT], end[COUNT], start = INT64_MAX, stop = 0;
  for (int q = 0; q < COUNT; q++) {
    const int64_t last = block.place_of(first + q);
    begin[q] = block.window && last >= block.window ? last - block.window + 1 : 0;
    end[q] = last + 1;
    start = std::min(start, begin[q] / LANES * LANES);
    stop = std::max(stop, end[q]);
    scores[q] = block.scores + q * block.stride;
    largest[q] = -FLT_MAX;
    for (int64_t i = 0; i < vectors; i++) query[q][i] = load(block.queries + (first + q) * size + i * LANES) * block.scale;
  }
  const int64_t whole = (stop + LANES - 1) / LANES * LANES;
  for (int64_t t = start; t < stop; t++) {
    Floats key[MOST];
    for (int64_t i = 0; i < vectors; i++) key[i] = load(block.keys + t * size + i * LANES);
    for (int q = 0; q < COUNT; q++) {
      Floats product = query[q][0] * key[0];
      for (int64_t i = 1; i < vectors; i++) product += query[q][i] * key[i];
      const float score = t >= begin[q] && t < end[q] ? sum(product) : -FLT_MAX;
      scores[q][t] = score;
      largest[q] = score > largest[q] ? score : largest[q];
    }
  }
  for (int q = 0; q < COUNT && block.cap > 0.0f; q++) {
    largest[q] = block.cap * std::tanh(largest[q] / block.cap);
    for (int64_t t = start; t < whole; t += LANES) store(scores[q] + t, limited(load(scores[q] + t), block.cap));
  }
  for (int q = 0; q < COUNT; q++) {
    for (int64_t t = stop; t < whole; t++) scores[q][t] = -FLT_MAX;
    Floats total{};
    for (int64_t t = start; t < whole; t += LANES) {
      const Floats weights = exponential(load(scores[q] + t) - largest[q]);
      store(scores[q] + t, weights);
      total += weights;
    }
    share[q] = 1.0f / sum(total);
  }
  for (int64_t t = start; t < stop; t++) {
    for (int64_t i = 0; i < vectors; i++) {
      const Floats value = load(block.values + t * size + i * LANES);
      for (int q = 0; q < COUNT; q++) context[q][i] += scores[q][t] * value;
    }
  }
  for (int q = 0; q < COUNT; q++)
    for (int64_t i = 0; i < vectors; i++) store(block.context_of(first + q) + i * LANES, context[q][i] * share[q]);
}

template <int N>
INLINE void attend_each(const Block& block) {
  for (int64_t first = 0; first < block.count;) {
    const int64_t left = block.count - first, parts = (left + QUERIES - 1) / QUERIES, some = (left + parts - 1) / parts;
    switch (some) {
      case 1: attend_queries<N, 1>(block, first); break;
      case 2: attend_queries<N, 2>(block, first); break;
      case 3: attend_queries<N, 3>(block, first); break;
      default: attend_queries<N, MOST_AT_ONCE>(block, first);
    }
    first += some;
  }
}

void attend_block(const Block& block) {
  switch (block.size) {
    case 32: return attend_each<32 / LANES>(block);
    case 64: return attend_each<64 / LANES>(block);
    case 128: return attend_each<128 / LANES>(block);
    default: return attend_each<0>(block);
  }
}
