#include "bridge.h"

#include <memory>
#include <new>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/private/mlx.h"
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

// One run of an operation: describes the tensors, and keeps alive what the worker thread will read.
class Task {
 public:
  Task(Shared operation, const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs)
      : operation_(std::move(operation)), input_count_(inputs.size()) {
    auto count = inputs.size() + outputs.size();
    shapes_.reserve(count);
    strides_.reserve(count);
    tensors_.reserve(count);
    buffers_.reserve(inputs.size());
    for (const auto& input : inputs) {
      describe(input);
      buffers_.push_back(input.data_shared_ptr());
    }
    // An output's memory is kept by MLX as that of its own operations is; a share of it here would keep the
    // next operation from reusing it.
    for (const auto& output : outputs) {
      describe(output);
    }
  }

  void run() const {
    operation_->call(
        operation_->context,
        tensors_.data(),
        input_count_,
        tensors_.data() + input_count_,
        tensors_.size() - input_count_);
  }

 private:
  void describe(const mx::array& array) {
    const auto& shape = shapes_.emplace_back(array.shape().begin(), array.shape().end());
    const auto& strides = strides_.emplace_back(array.strides().begin(), array.strides().end());
    const auto& flags = array.flags();
    mlx_bridge_tensor tensor;
    tensor.data = array.size() == 0 ? nullptr : const_cast<char*>(array.data<char>());
    tensor.shape = shape.data();
    tensor.strides = strides.data();
    tensor.ndim = shape.size();
    tensor.size = array.size();
    tensor.data_size = array.data_size();
    tensor.dtype = mlx_dtype_to_c(array.dtype());
    tensor.flags = (flags.row_contiguous ? MLX_BRIDGE_ROW_CONTIGUOUS : 0u) |
        (flags.col_contiguous ? MLX_BRIDGE_COL_CONTIGUOUS : 0u) |
        (flags.contiguous ? MLX_BRIDGE_CONTIGUOUS : 0u);
    tensors_.push_back(tensor);
  }

  Shared operation_;
  size_t input_count_;
  std::vector<std::vector<int32_t>> shapes_;
  std::vector<std::vector<int64_t>> strides_;
  std::vector<mlx_bridge_tensor> tensors_;
  std::vector<std::shared_ptr<mx::array::Data>> buffers_;
};

// The node in MLX's graph. Derivatives and vmap stay with the base class, which refuses them.
class RustPrimitive : public mx::Primitive {
 public:
  RustPrimitive(mx::Stream stream, Shared operation)
      : mx::Primitive(stream), operation_(std::move(operation)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    bool empty = true;
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
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
    auto task = std::make_shared<const Task>(operation_, inputs, outputs);
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
    return rust != nullptr && rust->operation_ == operation_;
  }

 private:
  Shared operation_;
};

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
    const auto& where = mlx_stream_get_(stream);
    if (where.device != mx::Device::cpu) {
      throw std::invalid_argument(
          "the operation `" + operation->name + "` is Rust code for the CPU: apply it on a CPU stream");
    }
    if (output_count == 0) {
      throw std::invalid_argument("the operation `" + operation->name + "` has no outputs");
    }
    std::vector<mx::array> arguments;
    arguments.reserve(input_count);
    for (size_t i = 0; i < input_count; ++i) {
      arguments.push_back(mlx_array_get_(inputs[i]));
    }
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> types;
    for (size_t i = 0; i < output_count; ++i) {
      mx::Shape shape(outputs[i].shape, outputs[i].shape + outputs[i].ndim);
      for (auto extent : shape) {
        if (extent < 0) {
          throw std::invalid_argument(
              "the operation `" + operation->name + "` has an output of negative extent");
        }
      }
      shapes.push_back(std::move(shape));
      types.push_back(mlx_dtype_to_cpp(outputs[i].dtype));
    }
    auto primitive = std::make_shared<RustPrimitive>(where, operation);
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

const char* mlx_bridge_last_error(void) {
  return last_error.c_str();
}

} // extern "C"
