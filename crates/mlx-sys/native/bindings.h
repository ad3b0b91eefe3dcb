// What bindgen reads: all of mlx-c, and the bridge.
//
// Half-precision types differ by platform in mlx-c's half.h; here they are plain, and the accessors that
// need them are always declared (halves.cpp defines them).
#define MLX_HALF_H
#define HAS_FLOAT16
#define HAS_BFLOAT16

#include <stdint.h>

typedef struct {
  uint16_t bits;
} float16_t;
typedef uint16_t bfloat16_t;

#include "mlx/c/mlx.h"

#include "bridge.h"
