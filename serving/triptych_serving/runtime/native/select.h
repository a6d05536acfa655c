// The arithmetic of choosing tokens, included by levels.h after attend.h, once for each level of instructions.

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

// Turn scores into weights, and return what makes their sum 1. Numbers up to the end of the last vector are overwritten.
INLINE float softmax(float* scores, int64_t count, float scale) {
  for (int64_t t = count; t % LANES; t++) scores[t] = -FLT_MAX;
  Floats most = Floats{} - FLT_MAX, total{};
  for (int64_t t = 0; t < count; t += LANES) most = greater(load(scores + t), most);
  const float highest = largest(most);
  for (int64_t t = 0; t < count; t += LANES) {
    const Floats weights = exponential((load(scores + t) - highest) * scale);
    store(scores + t, weights);
    total += weights;
  }
  return 1.0f / sum(total);
}

// Draw an index into `size` values, of which e^(value * scale) is proportional to the probability, with a random number below 1: among
// the `topk` likeliest (0: all), of these the fewest that have the share `topp` of their probability, and of those the ones that are at
// least `minp` times as likely as the likeliest. Of equal ones the first.
int64_t draw(const float* values, int64_t size, float scale, int64_t topk, double topp, double minp, double random) {
  thread_local std::vector<float> weights;
  thread_local std::vector<double> sums;  // of blocks
  weights.resize(round_up(size, LANES));
  std::copy(values, values + size, weights.begin());
  softmax(weights.data(), size, scale);
  sums.clear();
  double total = 0.0;
  for (int64_t first = 0; first < size; first += DRAWN) {
    Floats part{};
    for (int64_t i = first; i < std::min(size, first + DRAWN); i += LANES) part += load(weights.data() + i);
    sums.push_back(sum(part));
    total += sums.back();
  }
  const bool limits = topk > 0 && topk < size;
  if (limits || topp < 1.0 || minp > 0.0) return draw_likely(weights.data(), size, total, limits ? topk : 0, topp, minp, random);
  double left = random * total;
  size_t block = 0;
  for (; block + 1 < sums.size() && left >= sums[block]; block++) left -= sums[block];
  const int64_t start = block * DRAWN, stop = std::min(size, start + DRAWN);
  int64_t drawn = start;
  for (int64_t i = start; i < stop && left >= 0.0; i++)
    if (weights[i] > 0.0f) drawn = i, left -= weights[i];
  return drawn;
}
