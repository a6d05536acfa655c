// The operator GroupQueryAttention of decoder-only models: new tokens of each row over static caches, with rotary
// embeddings, grouped heads, a window and a soft limit of the scores; or of whole rows, without past keys and values. A row's result
// does not depend on other rows, or on how many tokens are read at once.

constexpr int64_t MOST_QUERIES = 32;  // of a block, which one thread computes

void rotate(const Kernel& kernel, const float* from, const float* cosines, const float* sines, int64_t half, int64_t size, float* to) {
  std::memcpy(to, from, size * sizeof(float));
  const int64_t next = kernel.interleaved ? 2 : 1, other = kernel.interleaved ? 1 : half;
  for (int64_t i = 0; i < half; i++) {
    const float x = from[i * next], y = from[i * next + other];
    to[i * next] = x * cosines[i] - y * sines[i];
    to[i * next + other] = y * cosines[i] + x * sines[i];
  }
}

// New queries, keys or values, `[rows, tokens, heads of size channels]` with a distance from token to token.
struct New {
  const float* data;
  int64_t distance;
};

// Copy caches to where they are continued, which may be the same place, and longer.
template <typename T>
void copy_cache(const Kernel::Tensor<T>& past, T* present, int64_t capacity) {
  if (present == past.data) return;
  const int64_t heads = past.shape[0] * past.shape[1], length = past.shape[2] * past.shape[3], place = capacity * past.shape[3];
  for (int64_t head = 0; head < heads; head++)
    std::memcpy(present + head * place, past.data + head * length, length * sizeof(T));
}

void put(float* to, const float* from, int64_t size) { std::memcpy(to, from, size * sizeof(float)); }

void put(int8_t* to, const float* from, int64_t size) {
  for (int64_t first = 0; first < size; first += SCALED) {
    const int64_t end = std::min(size, first + SCALED);
    float largest = 0.0f;
    for (int64_t i = first; i < end; i++) largest = std::max(largest, std::fabs(from[i]));
    const float step = largest / 127.0f, steps = largest > FLT_MIN * 127 ? 127.0f / largest : 0.0f;
    for (int64_t i = first; i < end; i++) to[i] = static_cast<int8_t>(std::lrint(from[i] * steps));
    std::memcpy(to + size + first / SCALED * sizeof step, &step, sizeof step);
  }
}

template <typename T>
void compute_causal_attention(const Kernel& kernel, void* context) {
  const auto query = kernel.input<float>(context, 0), key = kernel.input<float>(context, 1), value = kernel.input<float>(context, 2);
  const auto keys = kernel.input<T>(context, 3), values = kernel.input<T>(context, 4);
  const auto last = kernel.input<int32_t>(context, 5), total = kernel.input<int32_t>(context, 6);
  const auto cosines = kernel.has_rotary ? kernel.input<float>(context, 7) : Kernel::Tensor<float>();
  const auto sines = kernel.has_rotary ? kernel.input<float>(context, 8) : Kernel::Tensor<float>();
  const int64_t rows = query.shape[0], tokens = query.shape[1], heads = kernel.heads, shared = kernel.shared_heads;
  const bool cached = keys.rank;  // else these are whole rows
  const bool packed = !key.rank;  // else new keys and values are inputs of their own
  const int64_t width = query.rank == 3 ? query.shape[2] : 0, parts = heads + (packed ? 2 * shared : 0);
  const int64_t size = width / parts, cached_size = ::cached_size<T>(size), group = heads / shared, half = kernel.has_rotary ? cosines.shape[1] : 0;
  if ((cached && (keys.rank != 4 || keys.shape[1] != shared || keys.shape[3] != cached_size)) || size < 1 || size % ROUNDING ||
      size > LARGEST_HEAD)
    throw Fault{"GroupQueryAttention: the cache has another number of heads, or heads that are no multiple of 16 channels up to 256"};
  const bool fits = !cached || (keys.shape[0] == rows && values.has_shape({rows, shared, keys.shape[2], cached_size}));
  if (!fits || last.size() != rows || total.size() != 1)
    throw Fault{"GroupQueryAttention: the caches or their positions are not those of the rows"};
  if (kernel.has_rotary && (cosines.rank != 2 || !sines.has_shape({cosines.shape[0], half})))
    throw Fault{"GroupQueryAttention: the cosines and sines are no matrices of one shape"};
  const int64_t capacity = std::max<int64_t>(cached ? keys.shape[2] : 0, *total.data);
  const auto is_new = [&](const auto& tensor) { return packed || tensor.has_shape({rows, tokens, shared * size}); };
  if (width != parts * size || !is_new(key) || !is_new(value) || 2 * half > size || (!cached && capacity != tokens))
    throw Fault{"GroupQueryAttention: query, key and value have unsupported shapes"};
  const New new_queries{query.data, width};
  const New new_keys{packed ? query.data + heads * size : key.data, packed ? width : shared * size};
  const New new_values{packed ? query.data + (heads + shared) * size : value.data, new_keys.distance};
  const int64_t shape[3] = {rows, tokens, heads * size}, cache_shape[4] = {rows, shared, capacity, cached_size};
  float* result = kernel.output<float>(context, 0, shape, 3);
  T* present[2] = {kernel.output<T>(context, 1, cache_shape, 4), kernel.output<T>(context, 2, cache_shape, 4)};
  if (rows * tokens && (!present[0] || !present[1])) throw Fault{"GroupQueryAttention: present_key and present_value are required"};
  if (cached) copy_cache(keys, present[0], capacity), copy_cache(values, present[1], capacity);
  const auto start_of = [&](int64_t row) { return *total.data == tokens ? 0 : last.data[row] - tokens + 1; };
  for (int64_t row = 0; row < rows; row++)
    if (start_of(row) < 0 || start_of(row) + tokens > capacity || (half && start_of(row) + tokens > cosines.shape[0]))
      throw Fault{"GroupQueryAttention: a position is outside the cache"};

  const int64_t queries = tokens * group, blocks = (queries + MOST_QUERIES - 1) / MOST_QUERIES;
  const auto place = [&](int64_t row, int64_t head) { return (row * shared + head) * capacity * cached_size; };
  const auto store = [&](int64_t part) {  // keys and values of a row's head
    const int64_t row = part / shared, head = part % shared, start = start_of(row);
    float turned[LARGEST_HEAD];
    for (int64_t token = 0; token < tokens; token++) {
      const int64_t from = (row * tokens + token) * new_keys.distance + head * size, offset = place(row, head) + (start + token) * cached_size;
      rotate(kernel, new_keys.data + from, cosines.data + (start + token) * half, sines.data + (start + token) * half, half, size, turned);
      put(present[0] + offset, turned, size);
      put(present[1] + offset, new_values.data + from, size);
    }
  };
  const auto attend = [&](int64_t row, int64_t head, int64_t index) {  // one block of the queries of a row's head
    thread_local std::vector<float> turned, scores;
    Block<T> block{};
    block.first = index * MOST_QUERIES;
    block.count = std::min(MOST_QUERIES, queries - block.first);
    block.stride = capacity + ROUNDING;
    turned.resize(MOST_QUERIES * size);
    scores.resize(MOST_AT_ONCE * block.stride);
    block.start = start_of(row), block.group = group, block.size = size, block.window = kernel.window;
    block.queries = turned.data(), block.scores = scores.data();
    block.keys = present[0] + place(row, head), block.values = present[1] + place(row, head);
    block.next_keys = block.keys + capacity * cached_size;
    block.contexts = result + row * tokens * heads * size + head * group * size;
    block.width = heads * size;
    block.scale = kernel.scale, block.cap = kernel.cap;
    for (int64_t i = 0; i < block.count; i++) {
      const int64_t token = (block.first + i) / group, member = (block.first + i) % group, at = block.start + token;
      const float* from = new_queries.data + (row * tokens + token) * new_queries.distance + (head * group + member) * size;
      rotate(kernel, from, cosines.data + at * half, sines.data + at * half, half, size, turned.data() + i * size);
    }
    kernel.level.attend(block);
  };
  if (blocks == 1) {
    run_parallel(kernel, context, rows * shared, [&](int64_t part) { store(part), attend(part / shared, part % shared, 0); });
  } else {
    run_parallel(kernel, context, rows * shared, store);
    run_parallel(kernel, context, rows * shared * blocks,
                 [&](int64_t part) { attend(part / blocks / shared, part / blocks % shared, part % blocks); });
  }
}

void make_causal_attention(Kernel& kernel, const void* info) {
  kernel.heads = kernel.count(info, "num_heads");
  kernel.shared_heads = kernel.count(info, "kv_num_heads");
  kernel.scale = kernel.number(info, "scale", 0.0f);
  kernel.window = std::max<int64_t>(0, kernel.integer(info, "local_window_size", -1));
  kernel.has_rotary = kernel.integer(info, "do_rotary", 0);
  kernel.interleaved = kernel.integer(info, "rotary_interleaved", 0);
  kernel.cap = kernel.number(info, "softcap", 0.0f);
  const bool plain = kernel.integer(info, "smooth_softmax", 0) <= 0 && kernel.integer(info, "qk_output", 0) == 0;
  if (!plain || kernel.cap < 0.0f || kernel.heads % kernel.shared_heads || kernel.scale <= 0.0f ||
      kernel.inputs(info) > (kernel.has_rotary ? 9 : 7))
    throw Fault{"GroupQueryAttention: unsupported attributes or inputs"};
}
