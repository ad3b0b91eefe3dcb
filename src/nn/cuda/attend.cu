// One query of each head over the keys and values that its row sees. A block takes GROUP query heads of one key head, and its share
// (of gridDim.x) of the positions: queries [rows, QUERIES, 1, DIM], keys and values [rows, KV, columns, DIM], seen [rows, 3]: the
// first column, how many, and after how many columns they go on at the start. To out [rows, QUERIES * DIM] where one block has all positions, else to
// sums [rows, QUERIES, shares, DIM] and tops [rows, QUERIES, shares, 2], which attend_shares joins.
//
// Quantized keys and values are codes of BITS, 4 or 8, packed in words along the last axis, and a scale and a bias for each
// CODE_GROUP of them.
#if BITS
struct Held {
  const unsigned int* codes;
  const T* scales;
  const T* biases;

  __device__ void load(long long at, float* to) const {
    const float scale = static_cast<float>(scales[at / CODE_GROUP]);
    const float bias = static_cast<float>(biases[at / CODE_GROUP]);
    const unsigned int* words = codes + at * BITS / 32;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const unsigned int code = words[i * BITS / 32] >> (i * BITS % 32) & ((1u << BITS) - 1);
      to[i] = static_cast<float>(code) * scale + bias;
    }
  }
};
#else
struct Held {
  const T* elements;

  __device__ void load(long long at, float* to) const { load8(elements + at, to); }
};
#endif

extern "C" __global__ void attend(
    const T* queries,
#if BITS
    const unsigned int* key_codes, const T* key_scales, const T* key_biases, const unsigned int* value_codes,
    const T* value_scales, const T* value_biases,
#else
    const T* key_elements, const T* value_elements,
#endif
    const int* seen,
#if SHARED
    float* sums, float* tops,
#else
    T* out,
#endif
    int columns) {
  constexpr int LANES = DIM / 8;
  constexpr int AT_ONCE = 32 / LANES;
  constexpr int WARPS = THREADS / 32;
  constexpr float LEAST = -1e30f;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = lane % LANES, which = lane / LANES;
  const int first = blockIdx.y * GROUP;
  const long long row = blockIdx.z;
  const long long key_head = row * KV + first / (QUERIES / KV);
  const int start = seen[3 * row], count = seen[3 * row + 1], round = seen[3 * row + 2];
  const int share = (count + gridDim.x - 1) / gridDim.x;
  const int from = blockIdx.x * share, to = min(count, from + share);

  float query[GROUP][8], sum[GROUP][8], top[GROUP], total[GROUP];
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    load8(queries + (row * QUERIES + first + g) * DIM + 8 * part, query[g]);
    top[g] = LEAST;
    total[g] = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // Powers of two are cheaper.
      query[g][i] *= SCALE * 1.4426950408889634f;
      sum[g][i] = 0.0f;
    }
  }
#if BITS
  const Held keys = {key_codes, key_scales, key_biases}, values = {value_codes, value_scales, value_biases};
#else
  const Held keys = {key_elements}, values = {value_elements};
#endif
  const long long elements = key_head * (long long)columns * DIM + 8 * part;
  for (int base = from + warp * AT_ONCE * AHEAD; base < to; base += WARPS * AT_ONCE * AHEAD) {
    float key[AHEAD][8], value[AHEAD][8];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      // Past the end, the last one again: it counts for nothing.
      int column = start + min(base + a * AT_ONCE + which, to - 1);
      column = column < round ? column : column - round;
      keys.load(elements + (long long)column * DIM, key[a]);
      values.load(elements + (long long)column * DIM, value[a]);
    }
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      float score[AHEAD];
      float most = top[g];
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) {
        float dot = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          dot += query[g][i] * key[a][i];
        }
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) {
          dot += __shfl_xor_sync(0xffffffffu, dot, step);
        }
        score[a] = base + a * AT_ONCE + which < to ? dot : LEAST;
        most = fmaxf(most, score[a]);
      }
      const float fade = exp2f(top[g] - most);
      top[g] = most;
      total[g] *= fade;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sum[g][i] *= fade;
      }
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) {
        const float weight = base + a * AT_ONCE + which < to ? exp2f(score[a] - most) : 0.0f;
        total[g] += weight;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          sum[g][i] += weight * value[a][i];
        }
      }
    }
  }

  // The positions of a warp, then those of all warps.
  __shared__ float warp_top[WARPS][GROUP], warp_total[WARPS][GROUP], warp_sum[WARPS][GROUP][DIM];
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
#pragma unroll
    for (int step = LANES; step < 32; step *= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, top[g], step);
      const float most = fmaxf(top[g], other);
      const float ours = exp2f(top[g] - most), theirs = exp2f(other - most);
      total[g] = total[g] * ours + __shfl_xor_sync(0xffffffffu, total[g], step) * theirs;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sum[g][i] = sum[g][i] * ours + __shfl_xor_sync(0xffffffffu, sum[g][i], step) * theirs;
      }
      top[g] = most;
    }
    if (which == 0) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        warp_sum[warp][g][8 * part + i] = sum[g][i];
      }
      if (part == 0) {
        warp_top[warp][g] = top[g];
        warp_total[warp][g] = total[g];
      }
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < GROUP * DIM; at += THREADS) {
    const int g = at / DIM, i = at % DIM;
    float most = LEAST;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      most = fmaxf(most, warp_top[w][g]);
    }
    float all = 0.0f, weighed = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float weight = exp2f(warp_top[w][g] - most);
      all += warp_total[w][g] * weight;
      weighed += warp_sum[w][g][i] * weight;
    }
    const long long head = row * QUERIES + first + g;
#if SHARED
    const long long mine = head * gridDim.x + blockIdx.x;
    sums[mine * DIM + i] = weighed;
    if (i == 0) {
      tops[2 * mine] = most;
      tops[2 * mine + 1] = all;
    }
#else
    out[head * DIM + i] = static_cast<T>(weighed / all);
#endif
  }
}
