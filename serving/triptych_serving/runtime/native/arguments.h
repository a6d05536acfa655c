// What the kernels of each level of instructions take: heads, rows and packed weights, as pointers and sizes.

namespace {

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

}  // namespace
