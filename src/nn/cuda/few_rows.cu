// x [rows, inputs] by a matrix [outputs, inputs] of BITS each, 4 or 8, rows of which a warp takes OUTPUTS: to y [rows, outputs].
// Elements are quant * scale + bias, by their groups of GROUP_SIZE. At most ROWS rows.
extern "C" __global__ void few_rows(
    const T* x, const unsigned int* words, const T* scales, const T* biases, T* y, int rows, int inputs, int outputs) {
  constexpr int ELEMENTS = 128 / BITS;
  const int chunks = inputs / ELEMENTS;
  const int groups = inputs / GROUP_SIZE;
  const int lane = threadIdx.x % 32;
  const int first = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * OUTPUTS;
  if (first >= outputs) {
    return;
  }
  float sum[OUTPUTS][ROWS];
#pragma unroll
  for (int o = 0; o < OUTPUTS; ++o) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      sum[o][r] = 0.0f;
    }
  }
  // Past the last, the last again: what it gives is not stored.
  auto output = [&](int o) { return (long long)min(first + o, outputs - 1); };
  auto fetch = [&](int chunk, Bytes16* packed, float* scale, float* bias) {
#pragma unroll
    for (int o = 0; o < OUTPUTS; ++o) {
      packed[o] = *reinterpret_cast<const Bytes16*>(words + (output(o) * chunks + chunk) * 4);
      const long long group = output(o) * groups + chunk * ELEMENTS / GROUP_SIZE;
      scale[o] = static_cast<float>(scales[group]);
      bias[o] = static_cast<float>(biases[group]);
    }
  };
  Bytes16 next[OUTPUTS];
  float next_scale[OUTPUTS], next_bias[OUTPUTS];
  if (lane < chunks) {
    fetch(lane, next, next_scale, next_bias);
  }
  for (int chunk = lane; chunk < chunks; chunk += 32) {
    Bytes16 packed[OUTPUTS];
    float scale[OUTPUTS], bias[OUTPUTS];
#pragma unroll
    for (int o = 0; o < OUTPUTS; ++o) {
      packed[o] = next[o];
      scale[o] = next_scale[o];
      bias[o] = next_bias[o];
    }
    if (chunk + 32 < chunks) {
      fetch(chunk + 32, next, next_scale, next_bias);
    }
#pragma unroll
    for (int eight = 0; eight < ELEMENTS / 8; ++eight) {
      float weight[OUTPUTS][8];
#pragma unroll
      for (int o = 0; o < OUTPUTS; ++o) {
        if (BITS == 4) {
          // A nibble as the low bits of a bfloat16 from 128 to 143.
          const float base = bias[o] - 128.0f * scale[o];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const unsigned int pair = ((packed[o].word[eight] >> (4 * i)) & 0x000f000fu) | 0x43004300u;
            weight[o][i] = low_bfloat(pair) * scale[o] + base;
            weight[o][i + 4] = high_bfloat(pair) * scale[o] + base;
          }
        } else {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const unsigned int word = packed[o].word[(2 * eight + i / 4) % 4];
            const float quant = static_cast<float>((word >> (8 * (i % 4))) & 0xffu);
            weight[o][i] = quant * scale[o] + bias[o];
          }
        }
      }
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        float input[8];
        load8(x + (long long)min(r, rows - 1) * inputs + chunk * ELEMENTS + 8 * eight, input);
#pragma unroll
        for (int o = 0; o < OUTPUTS; ++o) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            sum[o][r] += weight[o][i] * input[i];
          }
        }
      }
    }
  }
#pragma unroll
  for (int o = 0; o < OUTPUTS; ++o) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const float whole = sum_of_warp(sum[o][r]);
      if (lane == 0 && r < rows && first + o < outputs) {
        y[(long long)r * outputs + first + o] = static_cast<T>(whole);
      }
    }
  }
}
