// Half-precision accessors of mlx-c's interface, as bit patterns: mlx-c itself has them on some platforms only.
#include <bit>
#include <cstdint>
#include <exception>

#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"

namespace {

template <typename Half>
int item_bits(uint16_t* bits, mlx_array array) {
  static_assert(sizeof(Half) == sizeof(uint16_t));
  try {
    *bits = std::bit_cast<uint16_t>(mlx_array_get_(array).item<Half>());
    return 0;
  } catch (const std::exception& error) {
    mlx_error("%s", error.what());
    return 1;
  }
}

template <typename Half>
const uint16_t* data_bits(mlx_array array) {
  try {
    return reinterpret_cast<const uint16_t*>(mlx_array_get_(array).data<Half>());
  } catch (const std::exception& error) {
    mlx_error("%s", error.what());
    return nullptr;
  }
}

} // namespace

extern "C" {

int mlx_array_item_float16(uint16_t* bits, const mlx_array array) {
  return item_bits<mlx::core::float16_t>(bits, array);
}

int mlx_array_item_bfloat16(uint16_t* bits, const mlx_array array) {
  return item_bits<mlx::core::bfloat16_t>(bits, array);
}

const uint16_t* mlx_array_data_float16(const mlx_array array) {
  return data_bits<mlx::core::float16_t>(array);
}

const uint16_t* mlx_array_data_bfloat16(const mlx_array array) {
  return data_bits<mlx::core::bfloat16_t>(array);
}

} // extern "C"
