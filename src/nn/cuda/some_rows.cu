// x [rows, inputs] by a matrix [outputs, inputs] of 4 bits in groups of GROUP_SIZE, by tensor cores: to y [rows, outputs]; at most 8 * TILES
// rows. A block takes 32 outputs, each of its warps some of the groups.
//
// Quants go in as the bfloat16 128 + quant, which is exact; a group's sums are scaled after it: scale * (sums - 128 * of x) + bias * of x,
// where those of x come out of a product with ones. A thread's word has eight inputs of a row; they come to a product in pairs 0 and
// 4, 1 and 5 and so on, and those of x in the same order.
inline __device__ void multiply(float* sums, const unsigned int* a, unsigned int b0, unsigned int b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(THREADS) some_rows(
    const bfloat16* x, const unsigned int* words, const bfloat16* scales, const bfloat16* biases, bfloat16* y, int rows, int inputs,
    int outputs) {
  constexpr int WARPS = THREADS / 32;
  constexpr int CHUNKS = GROUP_SIZE / 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int within = lane / 4, quarter = lane % 4;
  const int first = blockIdx.x * 32;
  const int groups = inputs / GROUP_SIZE;
  const long long words_of_row = inputs / 8;
  // Past the last, the last again: what it gives is not stored.
  long long row_of[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    row_of[r] = min(first + within + 8 * r, outputs - 1);
  }
  const bfloat16* x_of[TILES];
#pragma unroll
  for (int t = 0; t < TILES; ++t) {
    x_of[t] = x + (long long)min(within + 8 * t, rows - 1) * inputs + 8 * quarter;
  }
  const unsigned int ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  float sum[2][TILES][4] = {};
  for (int group = warp; group < groups; group += WARPS) {
    unsigned int packed[4][CHUNKS];
    float scale[4], bias[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) {
        packed[r][c] = words[row_of[r] * words_of_row + (group * CHUNKS + c) * 4 + quarter];
      }
      scale[r] = static_cast<float>(scales[row_of[r] * groups + group]);
      bias[r] = static_cast<float>(biases[row_of[r] * groups + group]) - 128.0f * scale[r];
    }
    float of_quants[2][TILES][4] = {}, of_x[TILES][4] = {};
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      unsigned int pairs[4][4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          pairs[r][i] = ((packed[r][c] >> (4 * i)) & 0x000f000fu) | 0x43004300u;
        }
      }
#pragma unroll
      for (int t = 0; t < TILES; ++t) {
        const Bytes16 raw = *reinterpret_cast<const Bytes16*>(x_of[t] + group * GROUP_SIZE + 32 * c);
        unsigned int input[4];
        // Of (0, 1), (2, 3), (4, 5), (6, 7): (0, 4), (1, 5), (2, 6), (3, 7).
        input[0] = __byte_perm(raw.word[0], raw.word[2], 0x5410);
        input[1] = __byte_perm(raw.word[0], raw.word[2], 0x7632);
        input[2] = __byte_perm(raw.word[1], raw.word[3], 0x5410);
        input[3] = __byte_perm(raw.word[1], raw.word[3], 0x7632);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int i = 2 * half;
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            const unsigned int a[4] = {
                pairs[2 * m][i], pairs[2 * m + 1][i], pairs[2 * m][i + 1], pairs[2 * m + 1][i + 1]};
            multiply(of_quants[m][t], a, input[i], input[i + 1]);
          }
          multiply(of_x[t], ones, input[i], input[i + 1]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int t = 0; t < TILES; ++t) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          // The first two are of output `within`, the others of the eighth after it.
          const int r = 2 * m + j / 2;
          sum[m][t][j] += scale[r] * of_quants[m][t][j] + bias[r] * of_x[t][j];
        }
      }
    }
  }
  // What the warps have, one after the other.
  __shared__ float all[32][8 * TILES + 1];
  for (int w = 0; w < WARPS; ++w) {
    if (warp == w) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            float& place = all[16 * m + 8 * (j / 2) + within][8 * t + 2 * quarter + j % 2];
            place = w == 0 ? sum[m][t][j] : place + sum[m][t][j];
          }
        }
      }
    }
    __syncthreads();
  }
  for (int at = threadIdx.x; at < 32 * rows; at += THREADS) {
    const int output = at % 32, row = at / 32;
    if (first + output < outputs) {
      y[(long long)row * outputs + first + output] = static_cast<bfloat16>(all[output][row]);
    }
  }
}
