// Weights that are packed once for the products of a level: equal ones of several sessions share memory, on huge pages.

constexpr size_t PAGE = 1 << 12, HUGE_PAGE = 1 << 21, CHUNK = 1 << 24;  // bytes
constexpr int64_t LARGEST_OF_7 = 64;  // two products of such weights with unsigned bytes have a sum of 16 bits

// Memory on huge pages: with fewer translations of addresses, weights are read faster.
struct Chunk {
  const size_t size;
  char* const data;
  size_t used = 0;

  explicit Chunk(size_t size) : size(size), data(static_cast<char*>(std::aligned_alloc(HUGE_PAGE, size))) {
    if (!data) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    madvise(data, size, MADV_HUGEPAGE);  // advice, which may be ignored
#endif
  }
  Chunk(const Chunk&) = delete;
  ~Chunk() { std::free(data); }
};

// Memory of one matrix. Those that are packed one after the other, as the graph uses them, share a chunk: few fill a huge page.
class Memory {
  static inline std::mutex mutex;
  static inline std::weak_ptr<Chunk> open;
  std::shared_ptr<Chunk> chunk;

 public:
  const size_t size;
  void* data;

  explicit Memory(size_t bytes) : size(round_up(bytes, LINE)) {
    const std::lock_guard<std::mutex> lock(mutex);
    chunk = open.lock();
    if (!chunk || chunk->size - chunk->used < size) open = chunk = std::make_shared<Chunk>(std::max<size_t>(CHUNK, round_up(size, HUGE_PAGE)));
    data = chunk->data + chunk->used;
    chunk->used += size;
  }
  Memory(const Memory&) = delete;
  ~Memory() {
    const std::lock_guard<std::mutex> lock(mutex);
    char* const start = static_cast<char*>(data);
    if (start + size == chunk->data + chunk->used) {
      chunk->used -= size;  // the next one has its place
      return;
    }
#if defined(MADV_HUGEPAGE)
    const size_t before = round_up(start - chunk->data, PAGE) - (start - chunk->data);
    if (size > before) madvise(start + before, (size - before) / PAGE * PAGE, MADV_DONTNEED);
#endif
  }
};

bool has_7_bits(const int8_t* weights, int64_t size) {
  return std::all_of(weights, weights + size, [](int8_t weight) { return weight >= -LARGEST_OF_7 && weight <= LARGEST_OF_7; });
}

// Weights as the kernels read them. Equal ones of several sessions share memory.
struct Packed {
  int64_t depth, columns, parts = 1;  // the depth of bytes is rounded up; 2 parts: halves, where sums of the weights' products could overflow
  Memory memory;
  std::vector<int32_t> sums;  // of bytes
  float factor = 1;           // of scales and offsets of 4 bits

  // In each panel of columns, four bytes of each column are together.
  Packed(const Level& level, const int8_t* from, int64_t from_depth, int64_t columns)
      : depth(round_up(from_depth, level.depth_unit)), columns(columns), parts(level.takes_bytes || has_7_bits(from, from_depth * columns) ? 1 : 2),
        memory(round_up(columns, level.panel) * depth * parts), sums(round_up(columns, level.panel)) {
    std::memset(memory.data, 0, memory.size);  // the last panel is not filled, nor is the rounded depth
    int8_t* __restrict to = static_cast<int8_t*>(memory.data);
    for (int64_t first = 0; first < columns; first += level.panel)
      for (int64_t part = 0; part < parts; part++)
        for (int64_t k = 0; k < depth; k += 4, to += 4 * level.panel)
          for (int64_t j = 0; j < std::min<int64_t>(4, from_depth - k); j++) {
            const int8_t* const row = from + (k + j) * columns + first;
            const int64_t count = std::min(level.panel, columns - first);
            int32_t* const __restrict sum = sums.data() + first;
            for (int64_t i = 0; i < count; i++) sum[i] += to[4 * i + j] = part ? row[i] - row[i] / 2 : parts == 1 ? row[i] : row[i] / 2;
          }
  }
  Packed(const Level& level, const float* from, int64_t depth, int64_t columns, bool transposed)
      : depth(depth), columns(columns), memory(round_up(columns, level.width) * depth * sizeof(float)) {
    level.pack_floats(from, depth, columns, transposed, static_cast<float*>(memory.data));
  }

  Packed(const Level& level, const BlockWeights& from)
      : depth(from.depth), columns(from.columns), memory(round_up(columns, level.panel) / level.panel * from.blocks() * level.block_bytes) {
    float largest = FLT_MIN;
    for (int64_t column = 0; column < columns; column++)
      for (int64_t block = 0; block < from.blocks(); block++)
        largest = std::max({largest, std::fabs(from.scale(column, block)), std::fabs(from.offset(column, block))});
    factor = std::ldexp(1.0f, std::ilogb(largest) - 10);  // scales and offsets then have 16 bits, of which 11 are exact
    std::memset(memory.data, 0, memory.size);
    level.pack_blocks(from, 1 / factor, static_cast<uint8_t*>(memory.data));
  }

  bool equals(const Packed& other) const {
    return factor == other.factor && depth == other.depth && columns == other.columns && parts == other.parts && sums == other.sums && memory.size == other.memory.size &&
           !std::memcmp(memory.data, other.memory.data, memory.size);
  }
};

// Return the weights, or equal ones that another session packed.
std::shared_ptr<const Packed> share(std::shared_ptr<const Packed> packed) {
  static std::mutex mutex;
  static std::vector<std::weak_ptr<const Packed>> known;
  const std::lock_guard<std::mutex> lock(mutex);
  size_t kept = 0;
  for (size_t i = 0; i < known.size(); i++) {
    const auto other = known[i].lock();
    if (!other) continue;
    if (other->equals(*packed)) return other;
    known[kept++] = known[i];
  }
  known.resize(kept);
  known.push_back(packed);
  return packed;
}
