// Draws among the likeliest tokens, which are the same for all levels of instructions.

namespace {

constexpr int64_t DRAWN = 1024;  // weights of a block, of which a draw finds the right one first

struct Likely {
  float weight;
  int64_t place;
  bool operator<(const Likely& other) const { return weight > other.weight || (weight == other.weight && place < other.place); }
};

// Draw among the likeliest weights: see `draw`.
int64_t draw_likely(const float* weights, int64_t size, double total, int64_t topk, double topp, double minp, double random) {
  thread_local std::vector<Likely> kept;
  kept.clear();
  const double least = topk ? -1.0 : (1.0 - topp) * total / size;  // of all that weigh less, none is needed
  const double lowest = minp > 0.0 ? minp * *std::max_element(weights, weights + size) : 0.0;
  for (int64_t i = 0; i < size; i++)
    if (weights[i] > least && (topk || weights[i] >= lowest)) kept.push_back({weights[i], i});
  if (kept.empty()) return 0;  // all are equal, or nothing is likely: no value is a number above minus infinity
  if (topk) {
    std::nth_element(kept.begin(), kept.begin() + topk, kept.end());
    kept.resize(topk);
    total = 0.0;
    for (const Likely& each : kept) total += each.weight;
  }
  double found = 0.0;
  if (topk || topp < 1.0) {
    size_t count = 0, sorted = 0;
    while (count < kept.size() && (!count || found < topp * total)) {
      if (count == sorted) {
        sorted = std::min(kept.size(), 8 * sorted + 64);  // mostly these are enough
        std::partial_sort(kept.begin() + count, kept.begin() + sorted, kept.end());
      }
      if (kept[count].weight < lowest) break;
      found += kept[count++].weight;
    }
    kept.resize(count);
  } else {
    for (const Likely& each : kept) found += each.weight;
  }
  double left = random * found;
  size_t drawn = 0;
  while (drawn + 1 < kept.size() && left >= kept[drawn].weight) left -= kept[drawn++].weight;
  return kept[drawn].place;
}

}  // namespace
