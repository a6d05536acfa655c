// The part of ONNX Runtime's C API (onnxruntime_c_api.h) that is used, and an operator's attributes, inputs and outputs.

namespace {

// Tables of functions only ever grow, so places stay valid.

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

// Compute parts of something in the session's threads.
template <typename Function>
void run_parallel(const Kernel& kernel, void* context, int64_t parts, Function function) {
  if (parts == 1) return function(0);
  const auto call = [](void* data, size_t part) { (*static_cast<Function*>(data))(part); };
  using Call = void (*)(void*, size_t);
  const auto run = kernel.at<Status (*)(void*, Call, size_t, size_t, void*)>(PARALLEL_FOR);
  kernel.check(run(context, call, parts, 0, &function));
}

// Call a function; what it throws becomes the status.
template <typename Function>
Status call_safely(const Kernel& kernel, Function function) {
  try {
    function();
    return nullptr;
  } catch (const Fault& fault) {
    return kernel.fail(fault.text);
  } catch (...) {
    return kernel.fail("out of memory");
  }
}

template <void (*MAKE)(Kernel&, const void*)>
Status create_safely(const CustomOp*, const void* const* api, const void* info, void** kernel) {
  Kernel made{api, 0, 1.0f, false};
  return call_safely(made, [&] {
    MAKE(made, info);
    *kernel = new Kernel(made);
  });
}

template <void (*COMPUTE)(const Kernel&, void*)>
Status compute_safely(void* kernel, void* context) {
  const Kernel& self = *static_cast<Kernel*>(kernel);
  return call_safely(self, [&] { COMPUTE(self, context); });
}

}  // namespace
