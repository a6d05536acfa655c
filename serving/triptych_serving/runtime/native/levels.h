// Levels of instructions: the arithmetic is compiled once for each, and the best one that the processor has is chosen.

namespace {

struct Level {
  void (*attend_to_floats)(const Head<float>&);
  void (*attend_to_bytes)(const Head<int8_t>&);
  void (*attend_block)(const Block<float>&);
  void (*attend_block_of_bytes)(const Block<int8_t>&);
  void (*log_softmax)(const float*, float*, int64_t);
  void (*top_k)(const float*, int64_t, int64_t, float*, int64_t*);
  int64_t (*draw)(const float*, int64_t, float, int64_t, double, double, double);
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

}  // namespace
