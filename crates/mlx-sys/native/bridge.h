// Rust functions as operations in MLX's lazy graph. The safe side is src/bridge.rs.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mlx/c/array.h"
#include "mlx/c/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

// The elements of the tensor lie without gaps in row-major order.
#define MLX_BRIDGE_ROW_CONTIGUOUS 1u
// The same in column-major order.
#define MLX_BRIDGE_COL_CONTIGUOUS 2u
// There are no gaps in the memory that the tensor spans.
#define MLX_BRIDGE_CONTIGUOUS 4u

// A tensor's memory while the operation runs.
typedef struct mlx_bridge_tensor_ {
  // The element at index 0, 0, ...; null only if the tensor has no elements.
  void* data;
  // Extents, and steps in elements: ndim of each. A step is 0 along a broadcast axis and may be negative.
  const int32_t* shape;
  const int64_t* strides;
  size_t ndim;
  // Elements by shape, and elements in the memory behind them.
  size_t size;
  size_t data_size;
  mlx_dtype dtype;
  uint32_t flags;
} mlx_bridge_tensor;

// What an operation will write.
typedef struct mlx_bridge_output_ {
  const int32_t* shape;
  size_t ndim;
  mlx_dtype dtype;
} mlx_bridge_output;

// Runs on the stream's worker thread. It must write every element of the outputs, which are row-contiguous and
// start uninitialized unless they update an input, and must not unwind. The descriptions of the outputs are the callee's: it may change them.
typedef void (*mlx_bridge_call)(
    const void* context,
    const mlx_bridge_tensor* inputs,
    size_t input_count,
    mlx_bridge_tensor* outputs,
    size_t output_count);

// Called once, on any thread, when neither a handle nor a graph nor a running task needs the context any more.
typedef void (*mlx_bridge_drop)(void* context);

// An operation that can be applied any number of times.
typedef struct mlx_bridge_op_ {
  void* ctx;
} mlx_bridge_op;

// Makes an operation and takes over the context. Null ctx on failure; the context has been dropped then.
mlx_bridge_op mlx_bridge_op_new(
    const char* name,
    void* context,
    mlx_bridge_call call,
    mlx_bridge_drop drop);

// Gives up the handle; arrays made with it stay valid.
void mlx_bridge_op_free(mlx_bridge_op op);

// Adds a node to the graph: `results` gets `output_count` new handles, owned by the caller. The stream has to be one
// of the CPU. Nonzero on failure, with the reason in mlx_bridge_last_error and `results` untouched.
int mlx_bridge_op_apply(
    mlx_array* results,
    mlx_bridge_op op,
    const mlx_array* inputs,
    size_t input_count,
    const mlx_bridge_output* outputs,
    size_t output_count,
    mlx_stream stream);

// Adds a node whose only output is one of its inputs, updated: of the same shape and type, and in the same memory where nobody else needs
// the input any more, else begun as a copy of it. The operation is not told of that input, which has to be row-contiguous. Otherwise as above.
int mlx_bridge_op_update(
    mlx_array* result,
    mlx_bridge_op op,
    const mlx_array* inputs,
    size_t input_count,
    size_t updated,
    mlx_stream stream);

// Adds a node that starts a compiled CUDA kernel: its parameters are pointers to the inputs, which are made contiguous, and to the outputs,
// then the numbers; `shared` is the bytes of shared memory that a block is given. MLX reads the kernel from its cache of compiled ones, under the
// name that mlx_bridge_cuda_module tells. The stream has to be one of the GPU. Results and failures as above.
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
    mlx_stream stream);

// What MLX appends to a kernel's name and `_`, in hexadecimal, to call its file in the cache.
uint64_t mlx_bridge_cuda_module(const char* key);

// Sets a variable of the environment, unless it is set. Before any other thread is there.
void mlx_bridge_default_variable(const char* name, const char* value);

// Why the last call on this thread failed; valid until the next one.
const char* mlx_bridge_last_error(void);

#ifdef __cplusplus
}
#endif
