// One query of each head over the keys and values that its row sees. A block takes GROUP query heads of one key head, and its share
// (of gridDim.x) of the positions: queries [rows, QUERIES, 1, DIM], keys and values [rows, KV, columns, DIM], sights [rows, 3]: the
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
    const int* sights,
#if SHARED
    float* sums, float* tops,
#else
    T* out,
#endif
    int columns) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = lane % LANES, which = lane / LANES;
  const int first = blockIdx.y * GROUP;
  const long long row = blockIdx.z;
  const long long key_head = row * KV + first / (QUERIES / KV);
  const int start = sights[3 * row], count = sights[3 * row + 1], round = sights[3 * row + 2];
  const int share = (count + gridDim.x - 1) / gridDim.x;
  const int from = blockIdx.x * share, to = min(count, from + share);

  Seen seen(queries + (row * QUERIES + first) * DIM);
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
    seen.add(key, value, to - base);
  }

  __shared__ __align__(16) float of_warps[WARPS * OF_WARP];
  seen.store(of_warps + warp * OF_WARP);
  __syncthreads();
#pragma unroll
  for (int each = 0; each < GROUP * DIM; each += THREADS) {
    const int g = (each + threadIdx.x) / DIM, i = (each + threadIdx.x) % DIM;
    if (g >= GROUP) {
      break;
    }
    const SeenByAll all(of_warps, g, i);
    const long long head = row * QUERIES + first + g;
#if SHARED
    const long long mine = head * gridDim.x + blockIdx.x;
    sums[mine * DIM + i] = all.sum;
    if (i == 0) {
      tops[2 * mine] = all.top;
      tops[2 * mine + 1] = all.total;
    }
#else
    out[head * DIM + i] = static_cast<T>(all.sum / all.total);
#endif
  }
}
