// Products of bytes with the tiles of AMX, included by levels.h within the namespace of AVX512-VNNI, which packs the weights: those of
// 64 inputs and 16 columns are a tile, whose rows are a panel apart.

constexpr int64_t TILE_ROWS = 16, TILE_BYTES = 64;  // of a row
constexpr int64_t FEWEST = 9;                       // rows: vectors multiply fewer faster
constexpr int64_t AT_ONCE = 4;                      // rows whose results are computed between two tiles of depth

struct __attribute__((packed)) TileShapes {  // the operand of LDTILECFG
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  explicit TileShapes(int64_t height) {  // of sums and inputs; weights fill their tiles
    for (int tile = 0; tile < 8; tile++) bytes[tile] = TILE_BYTES, rows[tile] = tile < 5 ? height : TILE_ROWS;
  }
};

// Sums of a tile of rows and a panel of columns.
struct Sums {
  alignas(LINE) int32_t values[TOGETHER][TILE_ROWS][LANES];
  int64_t row = 0, panel = 0;        // the first row
  int64_t height = 0, finished = 0;  // rows

  // Compute the results of the next `count` rows.
  __attribute__((noinline)) void finish(const Product& given, int64_t count) {
    const Product product = given;  // a copy that no result can overwrite, as far as the compiler knows
    const int64_t start = panel * PANEL, stop = std::min(finished + count, height);
    const Columns columns[TOGETHER] = {{product, start}, {product, start + LANES}, {product, start + 2 * LANES}, {product, start + 3 * LANES}};
    for (; finished < stop; finished++) {
      const int64_t place = row + finished;
#pragma GCC unroll 4
      for (int i = 0; i < TOGETHER; i++) {
        Ints total;
        std::memcpy(&total, values[i][finished], sizeof total);
        columns[i].finish(total + columns[i].sums * -zero_of(product, place), factor_of(product, place),
                          product.to + place * product.columns + start + LANES * i);
      }
    }
  }
};

// Multiply a tile of rows and a panel, and compute the results of `others` meanwhile. The weights at `next` are fetched into the second
// cache, so many lines of them for each tile of depth.
INLINE void multiply_tile(const Product& product, Sums& sums, Sums& others, const int8_t* next, int64_t lines) {
  const uint8_t* const inputs = product.inputs + sums.row * product.depth;
  const int8_t* weights = product.weights + sums.panel * PANEL * product.depth;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < product.depth; k += TILE_BYTES, weights += TILE_BYTES * PANEL) {
    _tile_loadd(4, inputs + k, product.depth);
    _tile_loadd(5, weights, 4 * PANEL);
    _tile_dpbusd(0, 4, 5);
    _tile_loadd(6, weights + TILE_BYTES, 4 * PANEL);
    _tile_dpbusd(1, 4, 6);
    _tile_loadd(7, weights + 2 * TILE_BYTES, 4 * PANEL);
    _tile_dpbusd(2, 4, 7);
    _tile_loadd(5, weights + 3 * TILE_BYTES, 4 * PANEL);
    _tile_dpbusd(3, 4, 5);
    for (int64_t line = 0; line < lines; line++, next += LINE) __builtin_prefetch(next, 0, 2);
    if (others.finished < others.height) others.finish(product, AT_ONCE);
  }
  others.finish(product, TILE_ROWS);
  _tile_stored(0, sums.values[0], TILE_BYTES);
  _tile_stored(1, sums.values[1], TILE_BYTES);
  _tile_stored(2, sums.values[2], TILE_BYTES);
  _tile_stored(3, sums.values[3], TILE_BYTES);
}

// The panels from `first` to `stop` of all rows. The last tile of rows may overlap the one before it.
void multiply_all(const Product& product, int64_t rows, int64_t first, int64_t stop) {
  if (rows < FEWEST) return vnni::multiply_all(product, rows, first, stop);
  const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS, height = (rows + tiles - 1) / tiles, size = PANEL * product.depth;
  const int64_t lines = (PANEL + tiles - 1) / tiles, share = product.depth / TILE_BYTES * lines * LINE;  // of the next panel's weights
  const TileShapes shapes(height);
  Sums sums[2];
  int current = 0;
  _tile_loadconfig(&shapes);
  for (int64_t panel = first; panel < stop; panel++)
    for (int64_t tile = 0; tile < tiles; tile++, current = !current) {
      Sums& these = sums[current];
      these.row = std::min(tile * height, rows - height), these.panel = panel, these.height = height, these.finished = 0;
      const int8_t* const next = product.weights + panel * size + (tiles > 1 ? size : AHEAD) + tile * share;
      multiply_tile(product, these, sums[!current], next, lines);
    }
  sums[!current].finish(product, TILE_ROWS);
  _tile_release();  // the runtime's own kernels compare what is left here with their shapes
}

constexpr Level with_tiles(Level level) {
  level.multiply = multiply_all;
  level.depth_unit = TILE_BYTES;
  return level;
}

constexpr Level LEVEL_OF_KERNELS = with_tiles(vnni::LEVEL_OF_KERNELS);
