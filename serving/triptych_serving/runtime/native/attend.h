// Vectors, and attention to one query, included by levels.h once for each level of instructions.

#if LEVEL == AVX512
constexpr int LANES = 16;
#elif LEVEL == AVX2
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
using Floats = float __attribute__((vector_size(4 * LANES)));
using Ints = int32_t __attribute__((vector_size(4 * LANES)));
using Unsigned = uint32_t __attribute__((vector_size(4 * LANES)));  // of bits that may overflow, where values are no numbers

INLINE Floats load(const float* from) {
  Floats result;
  std::memcpy(&result, from, sizeof result);
  return result;
}

INLINE Floats load(const int8_t* from) {
#if LEVEL == AVX512
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif LEVEL == AVX2
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  return Floats{float(from[0]), float(from[1]), float(from[2]), float(from[3])};
#endif
}

INLINE void store(float* to, Floats values) { std::memcpy(to, &values, sizeof values); }

// The next values, of which `left` are left, followed by others.
INLINE Floats load_some(const float* from, int64_t left, Floats others = Floats{}) {
  if (left >= LANES) return load(from);
  std::memcpy(&others, from, left * sizeof(float));
  return others;
}

INLINE void store_some(float* to, Floats values, int64_t left) {
  if (left >= LANES) return store(to, values);
#if LEVEL == AVX512
  _mm512_mask_storeu_ps(to, left > 0 ? (1 << left) - 1 : 0, values);
#else
  if (left > 0) std::memcpy(to, &values, left * sizeof(float));
#endif
}

INLINE float sum(Floats x) {
#if LEVEL == AVX512
  return _mm512_reduce_add_ps(x);
#elif LEVEL == AVX2
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
#else
  return (x[0] + x[1]) + (x[2] + x[3]);
#endif
}

// e^x for x <= 0, within 2 units in the last place; 0 below -87.
INLINE Floats exponential(Floats x) {
  const Floats scaled = x * 1.44269504f + 12582912.0f;  // rounded to an integer in the low bits
  const Floats whole = scaled - 12582912.0f;
  const Floats rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;  // ln 2 in two parts
  Floats y = rest * 1.3981999507e-3f + 8.3334519073e-3f;
  y = y * rest + 4.1665795894e-2f;
  y = y * rest + 1.6666665459e-1f;
  y = y * rest + 5.0000001201e-1f;
  y = y * (rest * rest) + rest + 1.0f;
  Unsigned bits;
  std::memcpy(&bits, &scaled, sizeof bits);
  bits = (bits + 127) << 23;
  Floats power;
  std::memcpy(&power, &bits, sizeof power);
  const Unsigned inside = reinterpret_cast<Unsigned>(x > -87.0f);
  Floats result = y * power;
  std::memcpy(&bits, &result, sizeof bits);
  bits &= inside;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

INLINE void put(float* to, const float* from, const float*, int64_t size) { std::memcpy(to, from, size * sizeof(float)); }

INLINE void put(int8_t* to, const float* from, const float* scale, int64_t size) {
  for (int64_t i = 0; i < size; i++) {
    const float steps = from[i] / scale[i], above = steps > -128.0f ? steps : -128.0f;  // also where it is no number
    to[i] = static_cast<int8_t>(std::nearbyint(above < 127.0f ? above : 127.0f));
  }
}

// Write softmax(query x keys) to the scores, and the sum of the values with these weights to the context. N: vectors of a head.
template <typename T, int N>
INLINE void attend(const Head<T>& head) {
  const int64_t size = N ? N * LANES : head.size, count = head.last + 1;
  const int64_t vectors = N ? N : size / LANES;
  if (head.new_key) {
    put(head.keys + head.last * size, head.new_key, head.key_scale, size);
    put(head.values + head.last * size, head.new_value, head.value_scale, size);
  }
  Floats query[N ? N : LARGEST_HEAD / LANES];
  for (int64_t i = 0; i < vectors; i++) {
    query[i] = load(head.query + i * LANES) * head.scale;
    if (head.key_scale) query[i] *= load(head.key_scale + i * LANES);
  }
  float largest = -FLT_MAX;
  for (int64_t t = 0; t < count; t++) {
    const T* key = head.keys + t * size;
    prefetch(head.values + t * size, size);
    Floats product = query[0] * load(key);
    for (int64_t i = 1; i < vectors; i++) product += query[i] * load(key + i * LANES);
    const float score = sum(product) + (head.bias ? head.bias[t] : 0.0f);
    head.scores[t] = score;
    largest = score > largest ? score : largest;
  }
  const int64_t whole = (count + LANES - 1) / LANES * LANES;
  for (int64_t t = count; t < whole; t++) head.scores[t] = -FLT_MAX;
  Floats total{};
  for (int64_t t = 0; t < whole; t += LANES) {
    const Floats weights = exponential(load(head.scores + t) - largest);
    store(head.scores + t, weights);
    total += weights;
  }
  const float share = 1.0f / sum(total);
  Floats context[N ? N : LARGEST_HEAD / LANES] = {};
  for (int64_t t = 0; t < count; t++) {
    const T* value = head.values + t * size;
    prefetch(head.next_keys + t * size, size);
    const float weight = head.scores[t];
    for (int64_t i = 0; i < vectors; i++) context[i] += weight * load(value + i * LANES);
  }
  for (int64_t i = 0; i < vectors; i++) {
    context[i] *= share;
    if (head.value_scale) context[i] *= load(head.value_scale + i * LANES);
    store(head.context + i * LANES, context[i]);
  }
  for (int64_t t = 0; t < count; t++) head.scores[t] *= share;
}

template <typename T>
void attend_any(const Head<T>& head) {
  switch (head.size) {
    case 32: return attend<T, 32 / LANES>(head);
    case 64: return attend<T, 64 / LANES>(head);
    case 128: return attend<T, 128 / LANES>(head);
    default: return attend<T, 0>(head);
  }
}

