// The arithmetic of choosing tokens, included by decoding.cpp after attend.h, once for each level of instructions.

constexpr int64_t BLOCK = 4 * LANES;

INLINE Floats greater(Floats a, Floats b) { return a > b ? a : b; }

INLINE float largest(Floats x) {
#if LEVEL == AVX512
  return _mm512_reduce_max_ps(x);
#else
  float most = x[0];
  for (int lane = 1; lane < LANES; lane++) most = std::max(most, x[lane]);
  return most;
#endif
}

// The largest of each lane of a block.
INLINE Floats largest(const float* from) {
  return greater(greater(load(from), load(from + LANES)), greater(load(from + 2 * LANES), load(from + 3 * LANES)));
}

INLINE bool any(Ints mask) {
#if LEVEL == AVX512
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask));
#endif
  int64_t parts[LANES / 2], found = 0;
  std::memcpy(parts, &mask, sizeof parts);
  for (const int64_t part : parts) found |= part;
  return found;
}

INLINE float maximum(const float* from, int64_t size) {
  Floats most = -FLT_MAX - Floats{};
  int64_t i = 0;
  for (; i + BLOCK <= size; i += BLOCK) most = greater(largest(from + i), most);
  float result = largest(most);
  for (; i < size; i++) result = from[i] > result ? from[i] : result;
  return result;
}

// One row of LogSoftmax.
void log_softmax(const float* from, float* to, int64_t size) {
  const float most = maximum(from, size);
  Floats total{};
  int64_t i = 0;
  for (; i + LANES <= size; i += LANES) total += exponential(load(from + i) - most);
  float rest = sum(total);
  for (; i < size; i++) rest += std::exp(from[i] - most);
  const float shift = std::log(rest);
  for (i = 0; i + LANES <= size; i += LANES) store(to + i, (load(from + i) - most) - shift);
  for (; i < size; i++) to[i] = (from[i] - most) - shift;
}

// One row of TopK: the `count` largest, descending, the first of equal ones first. Few numbers are larger than the smallest of the
// best so far, so most blocks are only compared with it.
void top_k(const float* from, int64_t size, int64_t count, float* best, int64_t* places) {
  int64_t known = 0;
  const auto insert = [&](int64_t start, int64_t stop) {
    for (int64_t i = start; i < stop; i++) {
      if (known == count && !(from[i] > best[count - 1])) continue;
      int64_t place = known < count ? known++ : count - 1;
      for (; place > 0 && from[i] > best[place - 1]; place--) best[place] = best[place - 1], places[place] = places[place - 1];
      best[place] = from[i];
      places[place] = i;
    }
  };
  int64_t start = 0;
  for (; start + BLOCK <= size; start += BLOCK)
    if (known < count || any(largest(from + start) > best[count - 1]))
      for (int64_t i = start; i < start + BLOCK; i += LANES)
        if (known < count || any(load(from + i) > best[count - 1])) insert(i, i + LANES);
  insert(start, size);
}
