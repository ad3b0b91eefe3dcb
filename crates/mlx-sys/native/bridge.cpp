#include "bridge.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/private/mlx.h"
#include "mlx/fast.h"
#include "mlx/primitives.h"

namespace {

namespace mx = mlx::core;

thread_local std::string last_error;

// A Rust closure and how to call and drop it.
struct Operation {
  std::string name;
  void* context;
  mlx_bridge_call call;
  mlx_bridge_drop drop;

  Operation(std::string name, void* context, mlx_bridge_call call, mlx_bridge_drop drop)
      : name(std::move(name)), context(context), call(call), drop(drop) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() {
    drop(context);
  }
};

using Shared = std::shared_ptr<const Operation>;

// One run of an operation: describes the tensors to it.
//
// MLX keeps the memory of inputs and outputs until the run is over, as for its own operations. A share of an
// input's memory here would keep later operations from reusing it.
class Task {
 public:
  // The updated input, if there is one, is described as an output only.
  Task(
      Shared operation,
      const std::vector<mx::array>& inputs,
      std::optional<size_t> updated,
      const std::vector<mx::array>& outputs)
      : operation_(std::move(operation)),
        input_count_(inputs.size() - (updated ? 1 : 0)),
        output_count_(outputs.size()) {
    std::vector<const mx::array*> arrays;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (i != updated) {
        arrays.push_back(&inputs[i]);
      }
    }
    size_t axes = 0;
    for (const auto& output : outputs) {
      arrays.push_back(&output);
    }
    for (const auto* array : arrays) {
      axes += array->ndim();
    }
    if (updated && inputs[*updated].data<char>() != outputs[0].data<char>()) {
      copied_ = inputs[*updated].data<char>();
      copied_bytes_ = inputs[*updated].nbytes();
    }
    // One piece of memory: descriptions, then strides, then extents, which leaves each of them aligned.
    auto count = arrays.size();
    auto strides_at = count * sizeof(mlx_bridge_tensor);
    auto extents_at = strides_at + axes * sizeof(int64_t);
    memory_.reset(new std::byte[extents_at + axes * sizeof(int32_t)]);
    tensors_ = reinterpret_cast<mlx_bridge_tensor*>(memory_.get());
    auto* tensor = tensors_;
    auto* strides = reinterpret_cast<int64_t*>(memory_.get() + strides_at);
    auto* extents = reinterpret_cast<int32_t*>(memory_.get() + extents_at);
    for (const auto* array : arrays) {
      std::copy(array->shape().begin(), array->shape().end(), extents);
      std::copy(array->strides().begin(), array->strides().end(), strides);
      describe(*tensor++, *array, extents, strides);
      extents += array->ndim();
      strides += array->ndim();
    }
  }

  void run() {
    if (copied_bytes_ > 0) {
      std::memcpy(tensors_[input_count_].data, copied_, copied_bytes_);
    }
    operation_->call(
        operation_->context, tensors_, input_count_, tensors_ + input_count_, output_count_);
  }

 private:
  static void describe(
      mlx_bridge_tensor& tensor,
      const mx::array& array,
      const int32_t* extents,
      const int64_t* strides) {
    const auto& flags = array.flags();
    tensor.data = array.size() == 0 ? nullptr : const_cast<char*>(array.data<char>());
    tensor.shape = extents;
    tensor.strides = strides;
    tensor.ndim = array.ndim();
    tensor.size = array.size();
    tensor.data_size = array.data_size();
    tensor.dtype = mlx_dtype_to_c(array.dtype());
    tensor.flags = (flags.row_contiguous ? MLX_BRIDGE_ROW_CONTIGUOUS : 0u) |
        (flags.col_contiguous ? MLX_BRIDGE_COL_CONTIGUOUS : 0u) |
        (flags.contiguous ? MLX_BRIDGE_CONTIGUOUS : 0u);
  }

  static_assert(sizeof(mlx_bridge_tensor) % alignof(int64_t) == 0);

  Shared operation_;
  size_t input_count_;
  size_t output_count_;
  std::unique_ptr<std::byte[]> memory_;
  mlx_bridge_tensor* tensors_;
  // What the first output begins as, where it does not lie there already.
  const char* copied_ = nullptr;
  size_t copied_bytes_ = 0;
};

// The node in MLX's graph. Derivatives and vmap stay with the base class, which refuses them.
class RustPrimitive : public mx::Primitive {
 public:
  RustPrimitive(mx::Stream stream, Shared operation, std::optional<size_t> updated = std::nullopt)
      : mx::Primitive(stream), operation_(std::move(operation)), updated_(updated) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    bool empty = true;
    for (auto& output : outputs) {
      if (!updated_ || !take_over(inputs[*updated_], output)) {
        output.set_data(mx::allocator::malloc(output.nbytes()));
      }
      empty = empty && output.size() == 0;
    }
    if (empty) {
      return;
    }
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& input : inputs) {
      encoder.set_input_array(input);
    }
    for (auto& output : outputs) {
      encoder.set_output_array(output);
    }
    // MLX's tasks have to be copyable.
    auto task = std::make_shared<Task>(operation_, inputs, updated_, outputs);
    encoder.dispatch([task = std::move(task)] { task->run(); });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(
        "[bridge] the operation `" + operation_->name +
        "` is Rust code for the CPU: apply it on a CPU stream");
  }

  const char* name() const override {
    return operation_->name.c_str();
  }

  // mlx::core::compile merges equivalent nodes that have the same inputs.
  bool is_equivalent(const mx::Primitive& other) const override {
    const auto* rust = dynamic_cast<const RustPrimitive*>(&other);
    return rust != nullptr && rust->operation_ == operation_ && rust->updated_ == updated_;
  }

 private:
  // Gives an input's memory to the output, if it is the last that needs it.
  bool take_over(const mx::array& input, mx::array& output) const {
    if (!input.flags().row_contiguous) {
      throw std::invalid_argument(
          "the operation `" + operation_->name + "` updates an input that isn't row-contiguous");
    }
    if (!input.is_donatable() || input.data_size() != input.size()) {
      return false;
    }
    output.copy_shared_buffer(input);
    return true;
  }

  Shared operation_;
  // Which input becomes the only output.
  std::optional<size_t> updated_;
};

mx::Shape shape_of(const Operation& operation, const mlx_bridge_output& output) {
  mx::Shape shape(output.shape, output.shape + output.ndim);
  if (std::any_of(shape.begin(), shape.end(), [](auto extent) { return extent < 0; })) {
    throw std::invalid_argument(
        "the operation `" + operation.name + "` has an output of negative extent");
  }
  return shape;
}

const mx::Stream& stream_of_cpu(const Operation& operation, const mlx_stream& stream) {
  const auto& where = mlx_stream_get_(stream);
  if (where.device != mx::Device::cpu) {
    throw std::invalid_argument(
        "the operation `" + operation.name + "` is Rust code for the CPU: apply it on a CPU stream");
  }
  return where;
}

std::vector<mx::array> arrays_of(const mlx_array* handles, size_t count) {
  std::vector<mx::array> arrays;
  arrays.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    arrays.push_back(mlx_array_get_(handles[i]));
  }
  return arrays;
}

// Runs `body`; an exception becomes the last error and a nonzero result.
template <typename Body>
int guarded(Body&& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an exception of unknown type";
  }
  return 1;
}

} // namespace

extern "C" {

mlx_bridge_op mlx_bridge_op_new(
    const char* name,
    void* context,
    mlx_bridge_call call,
    mlx_bridge_drop drop) {
  mlx_bridge_op op = {nullptr};
  bool owned = false;
  guarded([&] {
    std::string copy(name);
    std::shared_ptr<const Operation> shared =
        std::make_shared<Operation>(std::move(copy), context, call, drop);
    owned = true;
    op.ctx = new Shared(std::move(shared));
  });
  if (!owned) {
    drop(context);
  }
  return op;
}

void mlx_bridge_op_free(mlx_bridge_op op) {
  delete static_cast<Shared*>(op.ctx);
}

int mlx_bridge_op_apply(
    mlx_array* results,
    mlx_bridge_op op,
    const mlx_array* inputs,
    size_t input_count,
    const mlx_bridge_output* outputs,
    size_t output_count,
    mlx_stream stream) {
  return guarded([&] {
    const auto& operation = *static_cast<const Shared*>(op.ctx);
    const auto& where = stream_of_cpu(*operation, stream);
    if (output_count == 0) {
      throw std::invalid_argument("the operation `" + operation->name + "` has no outputs");
    }
    auto arguments = arrays_of(inputs, input_count);
    auto primitive = std::make_shared<RustPrimitive>(where, operation);
    if (output_count == 1) {
      auto shape = shape_of(*operation, outputs[0]);
      auto type = mlx_dtype_to_cpp(outputs[0].dtype);
      results[0].ctx =
          new mx::array(std::move(shape), type, std::move(primitive), std::move(arguments));
      return;
    }
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> types;
    for (size_t i = 0; i < output_count; ++i) {
      shapes.push_back(shape_of(*operation, outputs[i]));
      types.push_back(mlx_dtype_to_cpp(outputs[i].dtype));
    }
    auto made = mx::array::make_arrays(std::move(shapes), types, primitive, arguments);
    std::vector<std::unique_ptr<mx::array>> owned;
    for (auto& array : made) {
      owned.push_back(std::make_unique<mx::array>(std::move(array)));
    }
    for (size_t i = 0; i < output_count; ++i) {
      results[i].ctx = owned[i].release();
    }
  });
}

int mlx_bridge_op_update(
    mlx_array* result,
    mlx_bridge_op op,
    const mlx_array* inputs,
    size_t input_count,
    size_t updated,
    mlx_stream stream) {
  return guarded([&] {
    const auto& operation = *static_cast<const Shared*>(op.ctx);
    const auto& where = stream_of_cpu(*operation, stream);
    auto arguments = arrays_of(inputs, input_count);
    auto shape = arguments.at(updated).shape();
    auto type = arguments.at(updated).dtype();
    auto primitive = std::make_shared<RustPrimitive>(where, operation, updated);
    result->ctx = new mx::array(std::move(shape), type, std::move(primitive), std::move(arguments));
  });
}

int mlx_bridge_cuda_apply(
    mlx_array* results,
    const char* name,
    const char* key,
    const mlx_array* inputs,
    size_t input_count,
    const mlx_bridge_output* outputs,
    size_t output_count,
    const int32_t* numbers,
    size_t number_count,
    const int32_t blocks[3],
    int32_t threads,
    int32_t shared,
    mlx_stream stream) {
  return guarded([&] {
    auto arguments = arrays_of(inputs, input_count);
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> types;
    for (size_t i = 0; i < output_count; ++i) {
      shapes.emplace_back(outputs[i].shape, outputs[i].shape + outputs[i].ndim);
      types.push_back(mlx_dtype_to_cpp(outputs[i].dtype));
    }
    std::vector<mx::fast::ScalarArg> scalars(numbers, numbers + number_count);
    auto made = mx::fast::precompiled_cuda_kernel(
        name,
        key,
        arguments,
        shapes,
        types,
        scalars,
        {blocks[0] * threads, blocks[1], blocks[2]},
        {threads, 1, 1},
        shared,
        std::nullopt,
        true,
        mlx_stream_get_(stream));
    std::vector<std::unique_ptr<mx::array>> owned;
    for (auto& array : made) {
      owned.push_back(std::make_unique<mx::array>(std::move(array)));
    }
    for (size_t i = 0; i < output_count; ++i) {
      results[i].ctx = owned[i].release();
    }
  });
}

uint64_t mlx_bridge_cuda_module(const char* key) {
  return std::hash<std::string>{}(key);
}

void mlx_bridge_default_variable(const char* name, const char* value) {
  setenv(name, value, 0);
}

const char* mlx_bridge_last_error(void) {
  return last_error.c_str();
}

} // extern "C"
