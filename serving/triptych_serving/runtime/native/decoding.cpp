// Kernels for decoding graphs, for ONNX Runtime on CPUs. They take precedence over the runtime's own in sessions that register this
// library: GroupQueryAttention of one new token per row over static caches, LogSoftmax and TopK over the last dimension,
// ScatterElements in its input's memory, and on processors with AVX2 MatMulIntegerToFloat, QAttention of encoders, and of the domain
// "ai.triptych" NormToBytes, PerRowMatMul, PerRowGemm, PerRowAttention, BlockMatMul, and for bundles of earlier commits PerTokenMatMul and PerTokenGemm,
// which bundles also define as functions.
//
// With the configuration entry triptych.kernels=generation, for decoder-only models, GroupQueryAttention is causal_attention.h's, and
// there are MatMul, Gemm and MatMulNBits (4 bits) with weights that are part of the graph; with triptych.kernels=products the runtime
// computes attention, with triptych.kernels=attention these products.
//
// Caches are float32 or int8: for translation with a scale for each channel of each head, for decoder-only models as `cached_size`
// describes. Heads have a multiple of 16 channels. What the runtime's operator can do beyond that (rotary embeddings and grouped heads
// in translation, a soft cap) is an error. Products and causal attention run in the session's threads, all else in one. The environment
// variable TRIPTYCH_NATIVE_KERNELS chooses a lower level of instructions than the processor's best one: amx_int8, avx512_vnni, avx512,
// avx_vnni, avx2 or plain.

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif
#if defined(__linux__) && defined(__x86_64__) && !defined(OLD_ASSEMBLER) && \
    (__has_include(<amxint8intrin.h>) || __has_include(<amxintrin.h>))  // of GCC, of Clang
#define HAS_TILES true
#include <sys/syscall.h>
#include <unistd.h>
#else
#define HAS_TILES false
#endif

namespace {

// The part of ONNX Runtime's C API (onnxruntime_c_api.h) that is used. Tables only ever grow, so places stay valid.

constexpr uint32_t API_VERSION = 18;  // ONNX Runtime 1.18; later ones provide it, too
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
  TEXT_ATTRIBUTE = 87,
  INPUT = 90,
  OUTPUT = 91,
  RELEASE_STATUS = 93,
  RELEASE_SHAPE = 99,
  INPUT_COUNT = 230,
  INPUT_NAME = 232,
  CONFIG_ENTRY = 238,
  CONSTANT_INPUT = 249,
  PARALLEL_FOR = 274,
};

enum Type { FLOAT = 1, UINT8 = 2, INT8 = 3, INT32 = 6, INT64 = 7 };

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
  size_t (*may_share)(int**, int**);
  void (*release_may_share)(int*, int*);
  size_t (*shares)(int**, int**);  // inputs and outputs in the same memory
  void (*release_shares)(int*, int*);
  const char* own_name;  // ours, from here on
  size_t inputs, outputs;
  Type cache;
};

#define INLINE inline __attribute__((always_inline))
constexpr int ROUNDING = 16;      // at least the floats of a vector
constexpr int LARGEST_HEAD = 256;
constexpr int MOST_AT_ONCE = 4;  // queries that read keys and values together
constexpr int64_t LINE = 64;      // bytes of a cache line
constexpr int64_t AHEAD = 8192;   // bytes: weights are fetched into the first cache so long before their use

constexpr float MOST_BYTES = 255;
constexpr float TOKEN_STEP = 1.0f / 127, SMALLEST_TOKEN = 1e-20f;  // as in the functions that export writes
constexpr int32_t TOKEN_ZERO = 128;

constexpr int64_t round_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

template <typename T>
INLINE void prefetch(const T* from, int64_t size) {
  for (int64_t i = 0; i < size; i += LINE / sizeof(T)) __builtin_prefetch(from + i);
}

// A decoder-only model's key or value of `size` channels: floats, or bytes followed by a float for every SCALED of them, their step.
constexpr int64_t SCALED = 32;
template <typename T>
constexpr int64_t cached_size(int64_t size) {
  return sizeof(T) == 1 ? size + round_up(size, SCALED) / SCALED * sizeof(float) : size;
}

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

// Queries of some tokens that share a head's keys and values: of each token one after the other.
template <typename T>
struct Block {
  const float* queries;  // [count, size], turned
  const T* keys;         // [capacity, cached_size<T>(size)]
  const T* values;
  const T* next_keys;    // of the head that follows in memory, which are prefetched
  float* contexts;       // of the row's first token
  float* scores;         // [MOST_AT_ONCE, stride]
  int64_t first, count;  // queries of the row that come before, and of this block
  int64_t start;         // position of the row's first token
  int64_t group, size, stride, width, window;  // queries of a token; channels; of the scores and contexts; 0: all keys
  float scale;                                 // of the queries
  float cap;                                   // soft limit of the scores: cap * tanh(score / cap); 0: none

  int64_t place_of(int64_t query) const { return start + (first + query) / group; }
  float* context_of(int64_t query) const {
    return contexts + (first + query) / group * width + (first + query) % group * size;
  }
};

// A head of a sequence whose tokens attend to each other.
struct SequenceHead {
  const float* queries;  // [count, size]
  const float* keys;
  const float* values;
  float* contexts;
  int64_t count, size;      // tokens, channels
  int64_t distance, width;  // from one query, key or value to the next; from one context to the next
  float scale;              // of the scores
};

// Packed weights times inputs [rows, depth]. What belongs to columns is there for whole panels.
struct Product {
  const uint8_t* inputs;
  const int8_t* weights;
  const int32_t* sums;  // of the weights of each column
  const float* scales;   // of each column
  const float* factors;  // of each row, before the bias; null: none
  const int32_t* zeros;  // what stands for 0 in each row; null: `zero` in all
  const float* bias;     // null: none
  float* to;             // [rows, columns]
  int64_t depth, columns;
  int64_t parts;  // that weights are the sums of
  int32_t zero;   // what stands for 0 in the inputs
};

// The same of floats, packed by another function.
struct FloatProduct {
  const float* inputs;
  const float* weights;
  const float* bias;  // null: none
  float* to;
  int64_t depth, columns;
};

constexpr int64_t SCALE_BLOCK = 32;  // inputs of a column whose weights of 4 bits have a scale of their own

// Weights of 4 bits as the runtime's operator MatMulNBits has them: its blocks are multiples of ours.
struct BlockWeights {
  const uint8_t* values;  // two in a byte
  const float* scales;
  const uint8_t* zeros;  // two in a byte; null: 8
  const float* added;    // [blocks, columns]: to the weights of a block; null: nothing
  int64_t depth, columns;
  int64_t size;  // of the operator's blocks

  int64_t blocks() const { return (depth + SCALE_BLOCK - 1) / SCALE_BLOCK; }
  int64_t own_blocks() const { return (depth + size - 1) / size; }
  const uint8_t* block_of(int64_t column, int64_t block) const { return values + (column * own_blocks() * size + block * SCALE_BLOCK) / 2; }
  float scale(int64_t column, int64_t block) const { return scales[column * own_blocks() + block * SCALE_BLOCK / size]; }
  // What is subtracted from the weights times their scale.
  float offset(int64_t column, int64_t block) const {
    const int64_t at = block * SCALE_BLOCK / size;
    const int zero = zeros ? zeros[column * ((own_blocks() + 1) / 2) + at / 2] >> at % 2 * 4 & 15 : 8;
    return zero * scale(column, block) - (added ? added[block * columns + column] : 0.0f);
  }
};

// Inputs rounded to bytes times such weights.
struct BlockProduct {
  const int8_t* inputs;   // [rows, blocks, SCALE_BLOCK]
  const float* steps;     // [rows, blocks]: what a byte stands for
  const float* sums;      // [rows, blocks]: of the rounded inputs
  const uint8_t* weights;
  const float* bias;      // null: none
  float* to;              // [rows, columns]
  int64_t blocks, columns;
  float factor;
};

// A norm whose results are rounded to bytes.
struct Norm {
  const float* weights;
  const float* biases;
  float epsilon, step;
  int32_t zero;  // the byte that stands for 0
  int64_t size;
};

constexpr int64_t DRAWN = 1024;  // weights of a block, of which a draw finds the right one first

struct Likely {
  float weight;
  int64_t place;
  bool operator<(const Likely& other) const { return weight > other.weight || (weight == other.weight && place < other.place); }
};

// Draw among the likeliest weights: see `draw`.
int64_t draw_likely(const float* weights, int64_t size, double total, int64_t topk, double topp, double random) {
  thread_local std::vector<Likely> kept;
  kept.clear();
  const double least = topk ? -1.0 : (1.0 - topp) * total / size;  // of all that weigh less, none is needed
  for (int64_t i = 0; i < size; i++)
    if (weights[i] > least) kept.push_back({weights[i], i});
  if (kept.empty()) return 0;  // all are equal, or nothing is likely: no value is a number above minus infinity
  if (topk) {
    std::nth_element(kept.begin(), kept.begin() + topk, kept.end());
    kept.resize(topk);
    total = 0.0;
    for (const Likely& each : kept) total += each.weight;
  }
  double found = 0.0;
  size_t count = 0, sorted = 0;
  while (count < kept.size() && (!count || found < topp * total)) {
    if (count == sorted) {
      sorted = std::min(kept.size(), 8 * sorted + 64);  // mostly these are enough
      std::partial_sort(kept.begin() + count, kept.begin() + sorted, kept.end());
    }
    found += kept[count++].weight;
  }
  double left = random * found;
  size_t drawn = 0;
  while (drawn + 1 < count && left >= kept[drawn].weight) left -= kept[drawn++].weight;
  return kept[drawn].place;
}

struct Level {
  void (*attend_to_floats)(const Head<float>&);
  void (*attend_to_bytes)(const Head<int8_t>&);
  void (*attend_block)(const Block<float>&);
  void (*attend_block_of_bytes)(const Block<int8_t>&);
  void (*log_softmax)(const float*, float*, int64_t);
  void (*top_k)(const float*, int64_t, int64_t, float*, int64_t*);
  int64_t (*draw)(const float*, int64_t, float, int64_t, double, double);
  int64_t width = 0;  // columns of a panel of floats; 0: the runtime computes their products
  void (*pack_floats)(const float*, int64_t, int64_t, bool, float*) = nullptr;
  void (*multiply_floats)(const FloatProduct&, int64_t, int64_t, int64_t) = nullptr;
  int64_t panel = 0;         // columns of a panel of bytes; 0: the runtime computes their products
  bool takes_bytes = false;  // weights may have 8 bits
  void (*multiply)(const Product&, int64_t, int64_t, int64_t) = nullptr;
  float (*round_to_bytes)(const float*, int64_t, uint8_t*) = nullptr;
  float (*round_between)(const float*, int64_t, uint8_t*, int32_t*) = nullptr;
  void (*norm_to_bytes)(const Norm&, const float*, const float*, float*, uint8_t*) = nullptr;
  void (*attend_sequence)(const SequenceHead&) = nullptr;
  int64_t block_bytes = 0;  // of a panel of weights of 4 bits
  void (*pack_blocks)(const BlockWeights&, float, uint8_t*) = nullptr;
  void (*round_blocks)(const float*, int64_t, int8_t*, float*, float*) = nullptr;
  void (*multiply_blocks)(const BlockProduct&, int64_t, int64_t, int64_t) = nullptr;
  int64_t depth_unit = 4;  // the depth of bytes is rounded up to a multiple

  void attend(const Head<float>& head) const { attend_to_floats(head); }
  void attend(const Head<int8_t>& head) const { attend_to_bytes(head); }
  void attend(const Block<float>& block) const { attend_block(block); }
  void attend(const Block<int8_t>& block) const { attend_block_of_bytes(block); }
};

}  // namespace

#define PLAIN 0
#define AVX2 1
#define AVX512 2
#define LEVEL PLAIN
namespace plain {
#include "attend.h"
#include "select.h"
#include "attend_queries.h"
const Level LEVEL_OF_KERNELS{attend_any<float>, attend_any<int8_t>, attend_block<float>, attend_block<int8_t>, log_softmax, top_k, draw};
}
#if defined(__x86_64__)
// From BEGIN_TARGET to END_TARGET, functions are compiled for processors that have these features.
#define PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define BEGIN_TARGET(features) PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define END_TARGET PRAGMA(clang attribute pop)
#define AVX512_FEATURES "avx512f,avx512bw,avx512dq,avx512vl"
#else
#define BEGIN_TARGET(features) PRAGMA(GCC push_options) PRAGMA(GCC target(features))
#define END_TARGET PRAGMA(GCC pop_options)
#define AVX512_FEATURES "avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"
#endif
#undef LEVEL
#define LEVEL AVX2
#define VNNI false
BEGIN_TARGET("avx2,fma,f16c")
namespace avx2 {
#include "attend.h"
#include "select.h"
#include "attend_queries.h"
#include "floats.h"
#include "attend_sequence.h"
#include "multiply.h"
#include "four_bit.h"
}
END_TARGET
#undef VNNI
#define VNNI true
#if __has_include(<avxvnniintrin.h>) && !defined(OLD_ASSEMBLER)  // compilers that know it; compiler.py defines the latter
BEGIN_TARGET("avx2,fma,f16c,avxvnni")
namespace avx2::vnni {
#include "multiply.h"
#include "four_bit.h"
}
END_TARGET
#else
namespace avx2::vnni {
using avx2::LEVEL_OF_KERNELS;
}
#endif
#undef LEVEL
#define LEVEL AVX512
#undef VNNI
#define VNNI false
BEGIN_TARGET("avx2,fma,f16c," AVX512_FEATURES)
namespace avx512 {
#include "attend.h"
#include "select.h"
#include "attend_queries.h"
#include "floats.h"
#include "attend_sequence.h"
#include "multiply.h"
#include "four_bit.h"
}
END_TARGET
#undef VNNI
#define VNNI true
BEGIN_TARGET("avx2,fma,f16c,avx512vnni," AVX512_FEATURES)
namespace avx512::vnni {
#include "multiply.h"
#include "four_bit.h"
}
END_TARGET
#if HAS_TILES
BEGIN_TARGET("avx2,fma,f16c,avx512vnni,amx-tile,amx-int8," AVX512_FEATURES)
namespace avx512::vnni::amx {
#include "tiles.h"
}
END_TARGET
#else
namespace avx512::vnni::amx {
using vnni::LEVEL_OF_KERNELS;
}
#endif
#endif

namespace {

#if defined(__x86_64__)
bool read_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 4);
}

// True if the processor multiplies bytes in tiles, and the system lets this process use them, for which it asks here.
bool may_use_tiles() {
#if HAS_TILES
  constexpr unsigned TILES_OF_BYTES = 3 << 24;  // AMX-TILE and AMX-INT8
  constexpr int ASK = 0x1023, TILE_DATA = 18;   // ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of Linux's asm/prctl.h
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILES_OF_BYTES) == TILES_OF_BYTES && !syscall(SYS_arch_prctl, ASK, TILE_DATA);
#else
  return false;
#endif
}
#endif

// The best level that the processor has, or that is not above the one that is asked for.
const Level& choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();  // GCC does it by itself
  static const bool avx_vnni = read_avx_vnni(), tiles = may_use_tiles();  // once: CPUID takes long in a virtual machine
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const struct {
    const char* name;
    bool usable;
    const Level& level;
  } levels[] = {
      {"amx_int8", avx512 && tiles && __builtin_cpu_supports("avx512vnni"), avx512::vnni::amx::LEVEL_OF_KERNELS},
      {"avx512_vnni", avx512 && __builtin_cpu_supports("avx512vnni"), avx512::vnni::LEVEL_OF_KERNELS},
      {"avx512", avx512, avx512::LEVEL_OF_KERNELS},
      {"avx_vnni", avx2 && avx_vnni, avx2::vnni::LEVEL_OF_KERNELS},
      {"avx2", avx2, avx2::LEVEL_OF_KERNELS},
      {"plain", true, plain::LEVEL_OF_KERNELS},
  };
  const char* wanted = std::getenv("TRIPTYCH_NATIVE_KERNELS");
  const auto names = [wanted](const auto& each) { return wanted && !std::strcmp(wanted, each.name); };
  bool reached = std::none_of(std::begin(levels), std::end(levels), names);
  for (const auto& each : levels)
    if ((reached = reached || names(each)) && each.usable) return each.level;
#endif
  return plain::LEVEL_OF_KERNELS;
}

struct Fault {
  const char* text;
};

struct Packed;
struct Operands;

struct Kernel {
  const void* const* api;
  int64_t heads;
  float scale;
  bool weights;  // the last output is the attention
  const Level& level = choose();
  std::shared_ptr<const Packed> packed = nullptr;  // weights of a product; null: they are no part of the graph
  std::shared_ptr<const Operands> operands = nullptr;  // of a product of bytes; null: some are no part of the graph
  int64_t shared_heads = 0, window = 0;  // of causal attention, as the next three
  float cap = 0.0f;
  bool has_rotary = false, interleaved = false;
  bool has_bias = false;                           // a product with floats

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

  size_t inputs(const void* info) const {
    size_t count = 0;
    check(at<Status (*)(const void*, size_t*)>(INPUT_COUNT)(info, &count));
    return count;
  }

  // An attribute that counts something. Numbers that no tensor can have would overflow where they are multiplied.
  int64_t count(const void* info, const char* name, int64_t otherwise = 0) const {
    const int64_t value = integer(info, name, otherwise);
    if (value < 1 || value > INT32_MAX) throw Fault{"num_heads, kv_num_heads, K, N or block_size is not between 1 and 2147483647"};
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

  // Dimensions, and the data. An absent input has neither.
  template <typename T>
  struct Tensor {
    T* data = nullptr;
    int64_t shape[4] = {};
    size_t rank = 0;

    // Number of vectors along the last dimension.
    int64_t rows() const {
      int64_t count = rank ? 1 : 0;
      for (size_t i = 0; i + 1 < rank; i++) count *= shape[i];
      return count;
    }

    int64_t size() const { return rank ? rows() * shape[rank - 1] : data != nullptr; }

    bool has_shape(std::initializer_list<int64_t> sizes) const {
      return rank == sizes.size() && std::equal(sizes.begin(), sizes.end(), shape);
    }
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
    tensor.data = static_cast<T*>(data(value));
    return tensor;
  }

  void* data(const void* value) const {
    void* found = nullptr;
    check(at<Status (*)(const void*, void**)>(MUTABLE_DATA)(value, &found));
    return found;
  }

  template <typename T>
  Tensor<T> input(const void* context, size_t index) const {
    const void* value = nullptr;
    check(at<Status (*)(const void*, size_t, const void**)>(INPUT)(context, index, &value));
    return read<T>(value);
  }

  bool has(const void* info, size_t index) const {
    char name[2] = "";
    size_t size = sizeof name;
    if (index >= inputs(info)) return false;
    if (Status status = at<Status (*)(const void*, size_t, char*, size_t*)>(INPUT_NAME)(info, index, name, &size)) {
      at<void (*)(Status)>(RELEASE_STATUS)(status);  // longer
      return true;
    }
    return name[0];
  }

  // The value of an input that is part of the graph; null if it is computed.
  const void* constant_value(const void* info, size_t index) const {
    int constant = 0;
    const void* value = nullptr;
    check(at<Status (*)(const void*, size_t, int*, const void**)>(CONSTANT_INPUT)(info, index, &constant, &value));
    return constant ? value : nullptr;
  }

  template <typename T>
  Tensor<T> constant(const void* info, size_t index) const { return read<T>(constant_value(info, index)); }

  template <typename T>
  T* output(void* context, size_t index, const int64_t* shape, size_t rank) const {
    void* value = nullptr;
    check(at<Status (*)(void*, size_t, const int64_t*, size_t, void**)>(OUTPUT)(context, index, shape, rank, &value));
    return value ? static_cast<T*>(data(value)) : nullptr;
  }
};

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

void compute_log_softmax(const Kernel& kernel, void* context) {
  const auto values = kernel.input<float>(context, 0);
  if (!values.rank) throw Fault{"LogSoftmax: a number alone has no last dimension"};
  float* result = kernel.output<float>(context, 0, values.shape, values.rank);
  const int64_t size = values.shape[values.rank - 1];
  for (int64_t row = 0; row < values.rows(); row++) kernel.level.log_softmax(values.data + row * size, result + row * size, size);
}

void compute_top_k(const Kernel& kernel, void* context) {
  const auto values = kernel.input<float>(context, 0);
  const auto wanted = kernel.input<int64_t>(context, 1);
  const int64_t size = values.rank ? values.shape[values.rank - 1] : 0, count = wanted.size() == 1 ? *wanted.data : 0;
  if (count < 1 || count > size) throw Fault{"TopK: k is not between 1 and the number of values"};
  int64_t shape[4] = {values.shape[0], values.shape[1], values.shape[2], values.shape[3]};
  shape[values.rank - 1] = count;
  float* best = kernel.output<float>(context, 0, shape, values.rank);
  int64_t* places = kernel.output<int64_t>(context, 1, shape, values.rank);
  for (int64_t row = 0; row < values.rows(); row++)
    kernel.level.top_k(values.data + row * size, size, count, best + row * count, places + row * count);
}

void compute_norm(const Kernel& kernel, void* context) {
  const auto x = kernel.input<float>(context, 0), y = kernel.input<float>(context, 1);
  const auto weights = kernel.input<float>(context, 2), biases = kernel.input<float>(context, 3), step = kernel.input<float>(context, 4);
  const auto zero = kernel.input<uint8_t>(context, 5);
  const int64_t size = x.rank ? x.shape[x.rank - 1] : 0;
  if (!x.rank || x.rank != y.rank || x.size() != y.size() || weights.size() != size || biases.size() != size || step.size() != 1 ||
      zero.size() != 1)
    throw Fault{"NormToBytes: unsupported shapes"};
  float* sum = kernel.output<float>(context, 0, x.shape, x.rank);
  uint8_t* bytes = kernel.output<uint8_t>(context, 1, x.shape, x.rank);
  const Norm norm{weights.data, biases.data, kernel.scale, *step.data, *zero.data, size};
  for (int64_t at = 0; at < x.rows() * size; at += size) kernel.level.norm_to_bytes(norm, x.data + at, y.data + at, sum + at, bytes + at);
}

// Along the last of two dimensions.
void compute_scatter(const Kernel& kernel, void* context) {
  const auto values = kernel.input<float>(context, 0), updates = kernel.input<float>(context, 2);
  const auto places = kernel.input<int64_t>(context, 1);
  if (values.rank != 2 || places.rank != 2 || places.shape[0] > values.shape[0]) throw Fault{"ScatterElements: no matrices"};
  if (updates.rank != 2 || updates.size() != places.size()) throw Fault{"ScatterElements: not one update for each place"};
  float* result = kernel.output<float>(context, 0, values.shape, 2);
  if (result != values.data) std::memcpy(result, values.data, values.size() * sizeof(float));
  for (int64_t i = 0; i < places.size(); i++) {
    const int64_t place = places.data[i] + (places.data[i] < 0 ? values.shape[1] : 0);
    if (place < 0 || place >= values.shape[1]) throw Fault{"ScatterElements: a place is outside of its row"};
    result[i / places.shape[1] * values.shape[1] + place] = updates.data[i];
  }
}

// Compute parts of something in the session's threads.
template <typename Function>
void run_parallel(const Kernel& kernel, void* context, int64_t parts, Function function) {
  if (parts == 1) return function(0);
  const auto call = [](void* data, size_t part) { (*static_cast<Function*>(data))(part); };
  using Call = void (*)(void*, size_t);
  const auto run = kernel.at<Status (*)(void*, Call, size_t, size_t, void*)>(PARALLEL_FOR);
  kernel.check(run(context, call, parts, 0, &function));
}

struct Copy {  // of a row's positions in a cache
  int64_t from_row, from_start, to_row, to_start, count;
};

#include "causal_attention.h"
#include "products.h"
#include "encoder_attention.h"
#include "beams.h"

template <void (*COMPUTE)(const Kernel&, void*)>
Status compute_safely(void* kernel, void* context) {
  const Kernel& self = *static_cast<Kernel*>(kernel);
  try {
    COMPUTE(self, context);
    return nullptr;
  } catch (const Fault& fault) {
    return self.fail(fault.text);
  } catch (...) {
    return self.fail("out of memory");
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

void make_last(Kernel& kernel, const void* info) {
  if (kernel.integer(info, "axis", -1) != -1 || kernel.integer(info, "largest", 1) != 1 || kernel.integer(info, "sorted", 1) != 1)
    throw Fault{"only the largest along the last dimension, sorted"};
}

void make_scatter(Kernel& kernel, const void* info) {
  const int64_t axis = kernel.integer(info, "axis", 0);
  char reduction[5] = "none";  // as long as any
  size_t size = sizeof reduction;
  const auto read = kernel.at<Status (*)(const void*, const char*, char*, size_t*)>(TEXT_ATTRIBUTE);
  if (Status status = read(info, "reduction", reduction, &size)) kernel.at<void (*)(Status)>(RELEASE_STATUS)(status);  // there is none
  if ((axis != 1 && axis != -1) || std::strcmp(reduction, "none"))
    throw Fault{"ScatterElements: only along the last of two dimensions, and without a reduction"};
}

void make_norm(Kernel& kernel, const void* info) { kernel.scale = kernel.number(info, "epsilon", 1e-5f); }

// Registration. The functions that describe an operator get its own struct.

Type attention_input(const CustomOp* op, size_t index) {
  return index == 3 || index == 4 ? op->cache : index == 5 || index == 6 ? INT32 : FLOAT;
}
Type attention_output(const CustomOp* op, size_t index) { return index == 1 || index == 2 ? op->cache : FLOAT; }
Type selection_type(const CustomOp*, size_t index) { return index ? INT64 : FLOAT; }
Type scatter_input(const CustomOp*, size_t index) { return index == 1 ? INT64 : FLOAT; }
Type product_input(const CustomOp*, size_t index) {
  return index == 0 || index == 4 ? UINT8 : index == 1 || index == 5 ? INT8 : FLOAT;
}

CustomOp make_op(const char* name, size_t inputs, size_t outputs, Status (*compute)(void*, void*)) {
  CustomOp op{};
  op.version = API_VERSION;
  op.name = [](const CustomOp* self) { return self->own_name; };
  op.provider = [](const CustomOp*) -> const char* { return nullptr; };
  op.input_type = op.output_type = selection_type;
  op.input_count = [](const CustomOp* self) { return self->inputs; };
  op.output_count = [](const CustomOp* self) { return self->outputs; };
  op.destroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  op.input_characteristic = op.output_characteristic = [](const CustomOp*, size_t) { return 0; };
  op.input_memory = [](const CustomOp*, size_t) { return 0; };
  op.create2 = create_safely<make_last>;
  op.compute2 = compute;
  op.start_version = [](const CustomOp*) { return 1; };
  op.end_version = [](const CustomOp*) { return INT32_MAX; };
  op.may_share = op.shares = [](int**, int**) -> size_t { return 0; };
  op.release_may_share = op.release_shares = [](int*, int*) {};
  op.own_name = name;
  op.inputs = inputs;
  op.outputs = outputs;
  return op;
}

CustomOp make_log_softmax_op() {
  CustomOp op = make_op("LogSoftmax", 1, 1, compute_safely<compute_log_softmax>);
  op.start_version = [](const CustomOp*) { return 13; };  // earlier ones take all dimensions from the second on together
  return op;
}

template <typename T>
CustomOp make_attention_op(Type cache) {
  CustomOp op = make_op("GroupQueryAttention", 14, 4, compute_safely<compute_attention<T>>);
  op.input_type = attention_input;
  op.output_type = attention_output;
  op.input_characteristic = [](const CustomOp*, size_t index) -> int { return index == 1 || index == 2 || index > 6; };
  op.output_characteristic = [](const CustomOp*, size_t index) -> int { return index > 0; };
  op.create2 = create_safely<make_attention>;
  op.cache = cache;
  return op;
}

template <typename T>
CustomOp make_causal_op(Type cache) {
  CustomOp op = make_op("GroupQueryAttention", 14, 3, compute_safely<compute_causal_attention<T>>);
  op.input_type = [](const CustomOp* self, size_t index) { return index == 9 ? INT64 : attention_input(self, index); };
  op.output_type = attention_output;
  op.input_characteristic = [](const CustomOp*, size_t index) -> int { return (index > 0 && index < 5) || index > 6; };
  op.create2 = create_safely<make_causal_attention>;
  op.cache = cache;
  return op;
}

CustomOp make_scatter_op() {
  CustomOp op = make_op("ScatterElements", 3, 1, compute_safely<compute_scatter>);
  op.input_type = scatter_input;
  op.create2 = create_safely<make_scatter>;
  // Where edits are few, copying all values would be most of the work.
  op.shares = [](int** inputs, int** outputs) -> size_t {
    static int first = 0;
    *inputs = *outputs = &first;
    return 1;
  };
  return op;
}

CustomOp make_float_product_op(const char* name, size_t inputs) {
  CustomOp op = make_op(name, inputs, 1, compute_safely<compute_float_product>);
  op.input_type = op.output_type = [](const CustomOp*, size_t) { return FLOAT; };
  op.input_characteristic = [](const CustomOp*, size_t index) -> int { return index > 1; };
  op.create2 = create_safely<make_float_product>;
  return op;
}

template <const BlockPlaces& PLACES>
CustomOp make_block_op(const char* name, size_t inputs) {
  CustomOp op = make_op(name, inputs, 1, compute_safely<compute_block_product<PLACES>>);
  op.input_type = [](const CustomOp*, size_t index) {
    return index == 1 || (index && index == PLACES.zeros) ? UINT8 : index && index == PLACES.order ? INT32 : FLOAT;
  };
  op.input_characteristic = [](const CustomOp*, size_t index) -> int { return index > 2 && index != PLACES.added; };
  op.output_type = [](const CustomOp*, size_t) { return FLOAT; };
  op.create2 = create_safely<make_block_product<PLACES>>;
  return op;
}

CustomOp make_encoder_attention_op() {
  CustomOp op = make_op("QAttention", 9, 2, compute_safely<compute_encoder_attention<uint8_t, ATTENTION_PLACES, ATTENTION_LENGTHS>>);
  op.input_type = [](const CustomOp*, size_t index) {
    return index == 0 || index == 6 ? UINT8 : index == 1 || index == 7 ? INT8 : index == 5 ? INT32 : FLOAT;
  };
  op.output_type = [](const CustomOp*, size_t) { return FLOAT; };
  op.input_characteristic = [](const CustomOp*, size_t index) -> int { return index > 4; };
  op.output_characteristic = [](const CustomOp*, size_t index) -> int { return index > 0; };
  op.create2 = create_safely<make_encoder_attention<ATTENTION_PLACES>>;
  return op;
}

template <const Places& PLACES>
CustomOp make_row_op(const char* name, size_t inputs) {
  CustomOp op = make_op(name, inputs, 1, compute_safely<compute_row_product<PLACES>>);
  op.input_type = [](const CustomOp*, size_t index) { return index == 1 ? INT8 : FLOAT; };
  op.create2 = create_safely<make_product<PLACES>>;
  return op;
}

CustomOp make_row_attention_op() {
  CustomOp op = make_op("PerRowAttention", 5, 1, compute_safely<compute_encoder_attention<float, PER_ROW_PLACES, PER_ROW_LENGTHS>>);
  op.input_type = [](const CustomOp*, size_t index) { return index == 1 ? INT8 : index == 4 ? INT32 : FLOAT; };
  op.output_type = [](const CustomOp*, size_t) { return FLOAT; };
  op.input_characteristic = [](const CustomOp*, size_t index) -> int { return index > 3; };
  op.create2 = create_safely<make_encoder_attention<PER_ROW_PLACES>>;
  return op;
}

CustomOp make_norm_op() {
  CustomOp op = make_op("NormToBytes", 6, 2, compute_safely<compute_norm>);
  op.input_type = [](const CustomOp*, size_t index) { return index == 5 ? UINT8 : FLOAT; };
  op.output_type = [](const CustomOp*, size_t index) { return index ? UINT8 : FLOAT; };
  op.create2 = create_safely<make_norm>;
  return op;
}

CustomOp make_product_op() {
  CustomOp op = make_op("MatMulIntegerToFloat", 7, 1, compute_safely<compute_product>);
  op.input_type = product_input;
  op.input_characteristic = [](const CustomOp*, size_t index) -> int { return index > 3; };
  op.create2 = create_safely<make_product<PRODUCT_PLACES>>;
  return op;
}

}  // namespace

// Copy positions of rows from caches `[names, rows, heads, positions, bytes]` to others, or within one, one copy after the other.
extern "C" __attribute__((visibility("default"))) void triptych_copy_positions(
    const char* from, const int64_t* from_shape, char* to, const int64_t* to_shape, const Copy* copies, int64_t count) {
  const int64_t names = to_shape[0], heads = to_shape[2], bytes = to_shape[4];
  for (const Copy* copy = copies; copy < copies + count; copy++)
    for (int64_t name = 0; name < names; name++)
      for (int64_t head = 0; head < heads; head++) {
        const int64_t source = ((name * from_shape[1] + copy->from_row) * heads + head) * from_shape[3] + copy->from_start;
        const int64_t target = ((name * to_shape[1] + copy->to_row) * heads + head) * to_shape[3] + copy->to_start;
        std::memcpy(to + target * bytes, from + source * bytes, copy->count * bytes);
      }
}

extern "C" __attribute__((visibility("default"))) int triptych_extend_hypotheses(const Beams* beams, int64_t* texts, int64_t count) {
  return static_cast<int>(extend(*beams, texts, count));
}

extern "C" __attribute__((visibility("default"))) int triptych_draw(
    const float* values, int64_t size, double temperature, int64_t topk, double topp, double random) {
  const float scale = temperature > 1e-30 ? 1.0 / temperature : 1e30f;  // times 0 it must be 0
  return static_cast<int>(choose().draw(values, size, scale, topk, topp, random));
}

extern "C" __attribute__((visibility("default"))) int triptych_multiplies_bytes() { return choose().multiply != nullptr; }

extern "C" __attribute__((visibility("default"))) Status RegisterCustomOps(void* options, const ApiBase* base) {
  static const CustomOp floats = make_attention_op<float>(FLOAT), bytes = make_attention_op<int8_t>(INT8);
  static const CustomOp log_softmax = make_log_softmax_op();
  static const CustomOp top_k = make_op("TopK", 2, 2, compute_safely<compute_top_k>);
  static const CustomOp scatter = make_scatter_op(), product = make_product_op();
  static const CustomOp causal_floats = make_causal_op<float>(FLOAT), causal_bytes = make_causal_op<int8_t>(INT8);
  static const CustomOp four_bits = make_block_op<FOUR_BIT_PLACES>("MatMulNBits", 6), block = make_block_op<BLOCK_PLACES>("BlockMatMul", 5);
  static const CustomOp encoder_attention = make_encoder_attention_op(), norm = make_norm_op();
  static const CustomOp matmul = make_float_product_op("MatMul", 2), gemm = make_float_product_op("Gemm", 3);
  static const CustomOp per_token[] = {make_row_op<PER_TOKEN_PLACES>("PerTokenMatMul", 3), make_row_op<PER_TOKEN_PLACES>("PerTokenGemm", 4)};
  static const CustomOp per_row[] = {make_row_op<PER_ROW_PLACES>("PerRowMatMul", 3), make_row_op<PER_ROW_PLACES>("PerRowGemm", 4),
                                     make_row_attention_op()};
  const void* const* api = base->get_api(API_VERSION);
  if (!api) return nullptr;
  const auto call = [api](Place place) { return const_cast<void*>(api[place]); };
  const auto add = [&](const char* name, std::initializer_list<const CustomOp*> ops) {
    void* domain = nullptr;
    Status status = reinterpret_cast<Status (*)(const char*, void**)>(call(CREATE_DOMAIN))(name, &domain);
    for (const CustomOp* op : ops)
      if (!status && op) status = reinterpret_cast<Status (*)(void*, const CustomOp*)>(call(ADD_OP))(domain, op);
    return status ? status : reinterpret_cast<Status (*)(void*, void*)>(call(ADD_DOMAIN))(options, domain);
  };
  const auto read_entry = [&](const char* name, char (&value)[16]) {
    size_t size = sizeof value;
    const auto entry = reinterpret_cast<Status (*)(const void*, const char*, char*, size_t*)>(call(CONFIG_ENTRY));
    if (Status status = entry(options, name, value, &size)) {  // none, or too long for one of ours
      reinterpret_cast<void (*)(Status)>(call(RELEASE_STATUS))(status);
      value[0] = 0;
    }
  };
  char set[16] = "", exact[16] = "";
  read_entry("triptych.kernels", set);
  read_entry("session.x64quantprecision", exact);  // the runtime makes weights unsigned bytes, which it multiplies itself
  const bool whole = !std::strcmp(set, "generation"), attends = whole || !std::strcmp(set, "attention");
  const bool generates = attends || !std::strcmp(set, "products"), multiplies = (whole || !attends) && generates && choose().width;
  const bool has_bytes = choose().panel && std::strcmp(exact, "1");
  const bool has_blocks = multiplies && choose().panel;
  const CustomOp* of_floats = attends ? &causal_floats : generates ? nullptr : &floats;
  const CustomOp* of_bytes = attends ? &causal_bytes : generates ? nullptr : &bytes;
  Status status = add("com.microsoft", {of_floats, of_bytes, has_bytes ? &product : nullptr,
                                        has_bytes ? &encoder_attention : nullptr, has_blocks ? &four_bits : nullptr});
  if (!status && has_bytes) status = add("ai.triptych", {&per_token[0], &per_token[1], &per_row[0], &per_row[1], &per_row[2], &norm, has_blocks ? &block : nullptr});
  return status ? status : add("", {&log_softmax, &top_k, &scatter, multiplies ? &matmul : nullptr, multiplies ? &gemm : nullptr});
}
