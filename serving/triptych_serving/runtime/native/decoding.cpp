// Kernels for decoding graphs, for ONNX Runtime on CPUs. They take precedence over the runtime's own in sessions that register this
// library. One source is compiled:
//
//   arguments.h              what the arithmetic reads and writes: pointers and sizes
//   levels.h                 levels of instructions, each with the arithmetic of attend.h, attend_queries.h, attend_sequence.h, select.h,
//                            floats.h, multiply.h, four_bit.h and tiles.h; draw.h is the same for all
//   runtime.h                ONNX Runtime's C API; an operator's attributes, inputs and outputs
//   step_attention.h         GroupQueryAttention of translation: one new token of each row over static caches
//   causal_attention.h       GroupQueryAttention of decoder-only models
//   packed.h, products.h     products of bytes, floats, and weights of 4 bits
//   encoder_attention.h      attention of encoders
//   row_operators.h          LogSoftmax, TopK, ScatterElements in its input's memory, NormToBytes
//   beams.h                  a step of beam search, which Python calls
//   decoding.cpp             registration, and the functions that Python calls
//
// Operators of the domain "ai.triptych" are also functions in bundles, PerTokenMatMul and PerTokenGemm in those of earlier commits.
// Products of bytes, NormToBytes and the attention of encoders need AVX2.
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

#include "arguments.h"
#include "draw.h"
#include "levels.h"
#include "runtime.h"

namespace {

#include "step_attention.h"
#include "causal_attention.h"
#include "packed.h"
#include "products.h"
#include "encoder_attention.h"
#include "row_operators.h"

struct Copy {  // of a row's positions in a cache
  int64_t from_row, from_start, to_row, to_start, count;
};

#include "beams.h"

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

extern "C" __attribute__((visibility("default"))) int triptych_draw_token(
    const float* values, int64_t size, double temperature, int64_t topk, double topp, double minp, double random) {
  const float scale = temperature > 1e-30 ? 1.0 / temperature : 1e30f;  // times 0 it must be 0
  return static_cast<int>(choose().draw(values, size, scale, topk, topp, minp, random));
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
