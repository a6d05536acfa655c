// The operator GroupQueryAttention of translation: one new token of each row over static caches.

template <typename T>
void compute_attention(const Kernel& kernel, void* context) {
  const auto query = kernel.input<float>(context, 0), key = kernel.input<float>(context, 1);
  const auto keys = kernel.input<T>(context, 3), values = kernel.input<T>(context, 4);
  const auto last = kernel.input<int32_t>(context, 5);
  const auto bias = kernel.input<float>(context, 10);
  const auto key_scale = kernel.input<float>(context, 12), value_scale = kernel.input<float>(context, 13);
  const int64_t rows = query.shape[0], heads = kernel.heads, size = keys.shape[3], capacity = keys.shape[2];
  if (keys.rank != 4 || keys.shape[1] != heads || size < 1 || size % ROUNDING || size > LARGEST_HEAD)
    throw Fault{"the cache has another number of heads, or heads that are not a multiple of 16 channels, at most 256"};
  const bool packed = !key.data && key.rank == 0;
  const int64_t width = (packed ? 3 : 1) * heads * size;
  if (!query.has_shape({rows, 1, width}) || (key.rank && key.shape[1] != 0))
    throw Fault{"not one packed query, key and value, or one query alone, of each row"};
  if (!keys.has_shape({rows, heads, capacity, size}) || !values.has_shape({rows, heads, capacity, size}) || last.size() != rows)
    throw Fault{"the caches or their positions are not those of the rows"};
  if (sizeof(T) == 1 && (key_scale.size() != heads * size || value_scale.size() != heads * size))
    throw Fault{"int8 caches without a scale for each channel of each head"};
  if (bias.data && (bias.rank != 4 || (bias.shape[0] != 1 && bias.shape[0] != rows) || (bias.shape[1] != 1 && bias.shape[1] != heads) ||
                    bias.shape[2] != 1 || bias.shape[3] < capacity))
    throw Fault{"unsupported shape of the bias"};
  const int64_t output_shape[3] = {rows, 1, heads * size}, weights_shape[4] = {rows, heads, 1, capacity};
  float* result = kernel.output<float>(context, 0, output_shape, 3);
  T* present[2] = {kernel.output<T>(context, 1, keys.shape, 4), kernel.output<T>(context, 2, keys.shape, 4)};
  T* past[2] = {keys.data, values.data};
  for (int i = 0; i < 2; i++) {
    if (!present[i] && packed && rows) throw Fault{"the new keys and values have no place: present_key and present_value are required"};
    if (present[i] && present[i] != past[i]) std::memcpy(present[i], past[i], rows * heads * capacity * size * sizeof(T));
    if (!present[i]) present[i] = past[i];
  }
  float* weights = kernel.weights ? kernel.output<float>(context, 3, weights_shape, 4) : nullptr;
  thread_local std::vector<float> scores;
  scores.resize(capacity + ROUNDING);
  for (int64_t row = 0; row < rows; row++) {
    if (last.data[row] < 0 || last.data[row] >= capacity) throw Fault{"a position is outside the cache"};
    for (int64_t head = 0; head < heads; head++) {
      Head<T> one{};
      const int64_t offset = head * size, place = (row * heads + head) * capacity * size;
      one.query = query.data + row * width + offset;
      if (packed) one.new_key = one.query + heads * size, one.new_value = one.query + 2 * heads * size;
      if (sizeof(T) == 1) one.key_scale = key_scale.data + offset, one.value_scale = value_scale.data + offset;
      if (bias.data) {
        const int64_t of_row = bias.shape[0] == 1 ? 0 : row, of_head = bias.shape[1] == 1 ? 0 : head;
        one.bias = bias.data + (of_row * bias.shape[1] + of_head) * bias.shape[3];
      }
      one.keys = present[0] + place;
      one.values = present[1] + place;
      one.next_keys = one.keys + capacity * size;
      one.context = result + (row * heads + head) * size;
      one.scores = scores.data();
      one.size = size;
      one.last = last.data[row];
      one.scale = kernel.scale;
      kernel.level.attend(one);
      if (weights) {
        float* to = weights + (row * heads + head) * capacity;
        std::memcpy(to, scores.data(), (one.last + 1) * sizeof(float));
        std::memset(to + one.last + 1, 0, (capacity - one.last - 1) * sizeof(float));
      }
    }
  }
}

void make_attention(Kernel& kernel, const void* info) {
  kernel.heads = kernel.count(info, "num_heads");
  kernel.scale = kernel.number(info, "scale", 0.0f);
  const int64_t attention = kernel.integer(info, "qk_output", 0);
  kernel.weights = attention == 2;
  const bool plain = kernel.integer(info, "do_rotary", 0) == 0 && kernel.integer(info, "local_window_size", -1) == -1 &&
                     kernel.integer(info, "smooth_softmax", 0) <= 0 && kernel.number(info, "softcap", 0.0f) == 0.0f;
  if (!plain || kernel.count(info, "kv_num_heads") != kernel.heads || kernel.scale <= 0.0f || attention % 2)
    throw Fault{"decode_attention: unsupported attributes"};
}
