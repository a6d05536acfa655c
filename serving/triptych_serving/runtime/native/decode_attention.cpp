// Attention of one new token per row over static caches, for ONNX Runtime on CPUs: a kernel for the GroupQueryAttention nodes of
// decoding graphs, which takes precedence over the runtime's own in sessions that register this library.
//
// Caches are float32, or int8 with a scale for each channel of each head; heads have a multiple of 16 channels. What the runtime's
// operator can do beyond that (several new tokens, rotary embeddings, grouped heads, windows) is an error. It runs in one thread,
// with AVX-512, AVX2, or neither; TRIPTYCH_NATIVE_ATTENTION=avx2 or plain chooses a lower level than the processor's.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

// The part of ONNX Runtime's C API (onnxruntime_c_api.h) that is used. Tables only ever grow, so places stay valid.

constexpr uint32_t API_VERSION = 17;  // ONNX Runtime 1.17; later ones provide it, too
using Status = void*;                 // null: no error

struct ApiBase {
  const void* const* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

enum Place {  // in the table of functions
  CREATE_STATUS = 0,
  CREATE_DOMAIN = 26,
  ADD_OP = 27,
  ADD_DOMAIN = 28,
  MUTABLE_DATA = 51,
  DIMENSION_COUNT = 61,
  DIMENSIONS = 62,
  TYPE_AND_SHAPE = 65,
  FLOAT_ATTRIBUTE = 85,
  INT_ATTRIBUTE = 86,
  INPUT = 90,
  OUTPUT = 91,
  RELEASE_STATUS = 93,
  RELEASE_SHAPE = 99,
};

enum Type { FLOAT = 1, INT8 = 3, INT32 = 6 };

struct CustomOp {  // OrtCustomOp
  uint32_t version;
  void* (*create)(const CustomOp*, const void* const*, const void*);
  const char* (*name)(const CustomOp*);
  const char* (*provider)(const CustomOp*);
  Type (*input_type)(const CustomOp*, size_t);
  size_t (*input_count)(const CustomOp*);
  Type (*output_type)(const CustomOp*, size_t);
  size_t (*output_count)(const CustomOp*);
  void (*compute)(void*, void*);
  void (*destroy)(void*);
  int (*input_characteristic)(const CustomOp*, size_t);
  int (*output_characteristic)(const CustomOp*, size_t);
  int (*input_memory)(const CustomOp*, size_t);
  int (*variadic[4])(const CustomOp*);
  Status (*create2)(const CustomOp*, const void* const*, const void*, void**);
  Status (*compute2)(void*, void*);
  Status (*infer_shapes)(const CustomOp*, void*);
  int (*start_version)(const CustomOp*);
  int (*end_version)(const CustomOp*);
  Type cache;  // ours: the type of the caches
};

#define INLINE inline __attribute__((always_inline))
constexpr int ROUNDING = 16;      // at least the floats of a vector
constexpr int LARGEST_HEAD = 256;
// One row's head.
template <typename T>
struct Head {
  const float* query;
  const float* new_key;  // null: nothing is added to the cache
  const float* new_value;
  const float* key_scale;  // null: the caches are floats
  const float* value_scale;
  const float* bias;  // null: none
  T* keys;            // [capacity, size]
  T* values;
  const T* next_keys;  // of the head that follows in memory, which are prefetched
  float* context;
  float* scores;  // at least `last + 1`, rounded up to whole vectors
  int64_t size, last;
  float scale;
};

template <typename T>
using Attend = void (*)(const Head<T>&);

}  // namespace

#define PLAIN 0
#define AVX2 1
#define AVX512 2
#define LEVEL PLAIN
namespace plain {
#include "attend.h"
}
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#undef LEVEL
#define LEVEL AVX2
#include "attend.h"
}
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
namespace avx512 {
#undef LEVEL
#define LEVEL AVX512
#include "attend.h"
}
#pragma GCC pop_options
#endif

namespace {

// The best level that the processor has, or the one that is asked for.
template <typename T>
Attend<T> choose() {
#if defined(__x86_64__)
  const char* wanted = std::getenv("TRIPTYCH_NATIVE_ATTENTION");
  const bool lower = wanted && !std::strcmp(wanted, "plain"), half = wanted && !std::strcmp(wanted, "avx2");
  const bool avx2 = !lower && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && !half && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) return avx512::attend_any<T>;
  if (avx2) return avx2::attend_any<T>;
#endif
  return plain::attend_any<T>;
}

struct Fault {
  const char* text;
};

struct Kernel {
  const void* const* api;
  int64_t heads;
  float scale;
  bool weights;  // the last output is the attention
  Attend<float> of_floats = choose<float>();
  Attend<int8_t> of_bytes = choose<int8_t>();

  template <typename Function>
  Function at(Place place) const { return reinterpret_cast<Function>(const_cast<void*>(api[place])); }

  void check(Status status) const {
    if (status) {
      at<void (*)(Status)>(RELEASE_STATUS)(status);
      throw Fault{"the runtime refused a call"};
    }
  }

  Status fail(const char* text) const { return at<Status (*)(int, const char*)>(CREATE_STATUS)(1, text); }

  int64_t integer(const void* info, const char* name, int64_t otherwise) const {
    int64_t value = otherwise;
    if (Status status = at<Status (*)(const void*, const char*, int64_t*)>(INT_ATTRIBUTE)(info, name, &value)) {
      at<void (*)(Status)>(RELEASE_STATUS)(status);
      return otherwise;
    }
    return value;
  }

  float number(const void* info, const char* name, float otherwise) const {
    float value = otherwise;
    if (Status status = at<Status (*)(const void*, const char*, float*)>(FLOAT_ATTRIBUTE)(info, name, &value)) {
      at<void (*)(Status)>(RELEASE_STATUS)(status);
      return otherwise;
    }
    return value;
  }

  // Dimensions, and the data.
  template <typename T>
  struct Tensor {
    T* data = nullptr;
    int64_t shape[4] = {};
    size_t rank = 0;
  };

  template <typename T>
  Tensor<T> read(const void* value) const {
    Tensor<T> tensor;
    if (!value) return tensor;
    void* about = nullptr;
    check(at<Status (*)(const void*, void**)>(TYPE_AND_SHAPE)(value, &about));
    check(at<Status (*)(const void*, size_t*)>(DIMENSION_COUNT)(about, &tensor.rank));
    if (tensor.rank <= 4) check(at<Status (*)(const void*, int64_t*, size_t)>(DIMENSIONS)(about, tensor.shape, tensor.rank));
    at<void (*)(void*)>(RELEASE_SHAPE)(about);
    if (tensor.rank > 4) throw Fault{"a tensor has more than four dimensions"};
    void* data = nullptr;
    check(at<Status (*)(const void*, void**)>(MUTABLE_DATA)(value, &data));
    tensor.data = static_cast<T*>(data);
    return tensor;
  }

  template <typename T>
  Tensor<T> input(const void* context, size_t index) const {
    const void* value = nullptr;
    check(at<Status (*)(const void*, size_t, const void**)>(INPUT)(context, index, &value));
    return read<T>(value);
  }

  template <typename T>
  T* output(void* context, size_t index, const int64_t* shape, size_t rank) const {
    void* value = nullptr;
    check(at<Status (*)(void*, size_t, const int64_t*, size_t, void**)>(OUTPUT)(context, index, shape, rank, &value));
    return value ? read<T>(value).data : nullptr;
  }
};

template <typename T>
void compute(const Kernel& kernel, void* context) {
  const auto query = kernel.input<float>(context, 0), key = kernel.input<float>(context, 1);
  const auto keys = kernel.input<T>(context, 3), values = kernel.input<T>(context, 4);
  const auto last = kernel.input<int32_t>(context, 5);
  const auto bias = kernel.input<float>(context, 10);
  const auto key_scale = kernel.input<float>(context, 12), value_scale = kernel.input<float>(context, 13);
  const int64_t rows = query.shape[0], heads = kernel.heads, size = keys.shape[3], capacity = keys.shape[2];
  const bool packed = !key.data && key.rank == 0;
  const int64_t width = (packed ? 3 : 1) * heads * size;
  if (query.rank != 3 || query.shape[1] != 1 || query.shape[2] != width || (key.rank && key.shape[1] != 0))
    throw Fault{"not one packed query, key and value, or one query alone, of each row"};
  if (keys.rank != 4 || keys.shape[1] != heads || size % ROUNDING || size > LARGEST_HEAD)
    throw Fault{"the cache has another number of heads, or heads that are not a multiple of 16 channels, at most 256"};
  if (sizeof(T) == 1 && !(key_scale.data && value_scale.data)) throw Fault{"int8 caches without scales"};
  if (bias.data && (bias.rank != 4 || bias.shape[2] != 1 || bias.shape[3] < capacity)) throw Fault{"unsupported shape of the bias"};
  const int64_t output_shape[3] = {rows, 1, heads * size}, weights_shape[4] = {rows, heads, 1, capacity};
  float* result = kernel.output<float>(context, 0, output_shape, 3);
  T* present[2] = {kernel.output<T>(context, 1, keys.shape, 4), kernel.output<T>(context, 2, keys.shape, 4)};
  T* past[2] = {keys.data, values.data};
  for (int i = 0; i < 2; i++) {
    if (!present[i] && packed) throw Fault{"the new keys and values have no place: present_key and present_value are required"};
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
      if constexpr (sizeof(T) == 1) {
        kernel.of_bytes(one);
      } else {
        kernel.of_floats(one);
      }
      if (weights) {
        float* to = weights + (row * heads + head) * capacity;
        std::memcpy(to, scores.data(), (one.last + 1) * sizeof(float));
        std::memset(to + one.last + 1, 0, (capacity - one.last - 1) * sizeof(float));
      }
    }
  }
}

template <typename T>
Status compute_safely(void* kernel, void* context) {
  const Kernel& self = *static_cast<Kernel*>(kernel);
  try {
    compute<T>(self, context);
    return nullptr;
  } catch (const Fault& fault) {
    return self.fail(fault.text);
  } catch (...) {
    return self.fail("out of memory");
  }
}

Status create(const CustomOp*, const void* const* api, const void* info, void** kernel) {
  Kernel made{api, 0, 1.0f, false};
  made.heads = made.integer(info, "num_heads", 0);
  made.scale = made.number(info, "scale", 0.0f);
  const int64_t attention = made.integer(info, "qk_output", 0);
  made.weights = attention == 2;
  const bool plain = made.integer(info, "do_rotary", 0) == 0 && made.integer(info, "local_window_size", -1) == -1 &&
                     made.integer(info, "smooth_softmax", 0) <= 0 && made.number(info, "softcap", 0.0f) == 0.0f;
  if (!plain || made.heads < 1 || made.integer(info, "kv_num_heads", 0) != made.heads || made.scale <= 0.0f || attention % 2)
    return made.fail("decode_attention: unsupported attributes");
  *kernel = new Kernel(made);
  return nullptr;
}

// Registration.

constexpr size_t INPUTS = 14, OUTPUTS = 4;

Type input_type(const CustomOp* op, size_t index) {
  return index == 3 || index == 4 ? op->cache : index == 5 || index == 6 ? INT32 : FLOAT;
}
Type output_type(const CustomOp* op, size_t index) { return index == 1 || index == 2 ? op->cache : FLOAT; }
int optional_input(const CustomOp*, size_t index) { return index == 1 || index == 2 || index > 6; }
int optional_output(const CustomOp*, size_t index) { return index > 0; }

template <typename T>
CustomOp make_op(Type cache) {
  CustomOp op{};
  op.version = API_VERSION;
  op.name = [](const CustomOp*) { return "GroupQueryAttention"; };
  op.provider = [](const CustomOp*) -> const char* { return nullptr; };
  op.input_type = input_type;
  op.input_count = [](const CustomOp*) { return INPUTS; };
  op.output_type = output_type;
  op.output_count = [](const CustomOp*) { return OUTPUTS; };
  op.destroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  op.input_characteristic = optional_input;
  op.output_characteristic = optional_output;
  op.input_memory = [](const CustomOp*, size_t) { return 0; };
  op.create2 = create;
  op.compute2 = compute_safely<T>;
  op.start_version = [](const CustomOp*) { return 1; };
  op.end_version = [](const CustomOp*) { return 1; };
  op.cache = cache;
  return op;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Status RegisterCustomOps(void* options, const ApiBase* base) {
  static const CustomOp floats = make_op<float>(FLOAT), bytes = make_op<int8_t>(INT8);
  const void* const* api = base->get_api(API_VERSION);
  if (!api) return nullptr;
  auto call = [api](Place place) { return const_cast<void*>(api[place]); };
  void* domain = nullptr;
  Status status = reinterpret_cast<Status (*)(const char*, void**)>(call(CREATE_DOMAIN))("com.microsoft", &domain);
  for (const CustomOp* op : {&floats, &bytes})
    if (!status) status = reinterpret_cast<Status (*)(void*, const CustomOp*)>(call(ADD_OP))(domain, op);
  if (!status) status = reinterpret_cast<Status (*)(void*, void*)>(call(ADD_DOMAIN))(options, domain);
  return status;
}
