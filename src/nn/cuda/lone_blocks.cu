// One token of one row through LAYERS blocks of a decoder: y = x + output(attention(qkv(norm(x)))), and of that y + down(gate * up of
// norm(y)). BLOCKS thread blocks, all of which run at once, wait for each other where they need what the others have; a thread of each
// meanwhile goes on fetching its share of the matrices, which wait for nothing: memory is hardly ever idle.
//
// x and out [HIDDEN], matrices [outputs, inputs], keys and values [KV, capacity, DIM] of the `position` positions before, from column `start` on;
// those of the new one to new_key and new_value [KV, DIM]. `turns` are zeros, [ALL_COUNTERS], COUNTERS for each layer; as many are left in next_turns. scratch is
// nobody else's.
constexpr int WIDE = QUERIES * DIM;
constexpr int GROUP = QUERIES / KV;
constexpr int WARPS = THREADS / 32;
constexpr int MEETINGS = 5;
static_assert(MEETINGS + KV <= COUNTERS, "a counter for each meeting, and for each key head");
constexpr float LEAST = -1e30f;

// In scratch, by floats; what is bfloat16 takes half of its place.
constexpr int QKV_AT = 0;
constexpr int SEEN_AT = QKV_AT + WIDE + 2 * KV * DIM;
constexpr int MIDDLE_AT = SEEN_AT + WIDE;
constexpr int INNER_AT = MIDDLE_AT + HIDDEN;
constexpr int STREAM_AT = INNER_AT + INNER;
constexpr int TOPS_AT = STREAM_AT + HIDDEN;
constexpr int SUMS_AT = TOPS_AT + 2 * QUERIES * SHARES;

// What a block has of a product [OUTPUTS of HALVES matrices, INPUTS]: units of its outputs, of these by chunks of the inputs, and of each by halves.
template <int INPUTS, int CHUNK_, int OUTPUTS, int HALVES>
struct Product {
  static constexpr int CHUNK = CHUNK_;
  static constexpr int CHUNKS = INPUTS / CHUNK;
  static constexpr int OF_OUTPUT = HALVES * CHUNKS;

  static __device__ int first() { return blockIdx.x * OUTPUTS / BLOCKS; }
  static __device__ int outputs() { return (blockIdx.x + 1) * OUTPUTS / BLOCKS - first(); }
  static __device__ int feature(int output) { return first() + output; }
  static __device__ int chunk_of(int unit) { return unit / HALVES % CHUNKS; }
  static __device__ int units() { return outputs() * OF_OUTPUT; }
  static __device__ long long place(int unit) {
    const int output = feature(unit / OF_OUTPUT), half = unit % HALVES, chunk = chunk_of(unit);
    return (output + (long long)half * OUTPUTS) * INPUTS + chunk * CHUNK;
  }
};
using Qkv = Product<HIDDEN, HIDDEN_CHUNK, (QUERIES + 2 * KV) * DIM, 1>;
using Output = Product<WIDE, WIDE_CHUNK, HIDDEN, 1>;
using GateUp = Product<HIDDEN, HIDDEN_CHUNK, INNER, 2>;
using Down = Product<INNER, INNER_CHUNK, HIDDEN, 1>;

inline __device__ unsigned int shared_place(const void* pointer) {
  return static_cast<unsigned int>(__cvta_generic_to_shared(pointer));
}

// Stages of shared memory that matrices come through. Each is full, then empty, by turns.
struct Ring {
  unsigned int stages, full, empty;

  __device__ void prepare() const {
    for (int stage = 0; stage < STAGES; ++stage) {
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(full + 8 * stage) : "memory");
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(empty + 8 * stage) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  static __device__ void wait(unsigned int barrier, unsigned int parity) {
    unsigned int done;
    do {
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(barrier), "r"(parity)
          : "memory");
    } while (!done);
  }
  __device__ void wait_full(int at) const { wait(full + 8 * (at % STAGES), at / STAGES % 2); }
  __device__ void give_back(int at) const {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(empty + 8 * (at % STAGES)) : "memory");
  }
};

// Fetches units to the ring, one after the other. It is one thread's work, and as little for each as can be.
struct Fetcher {
  Ring ring;
  unsigned long long policy;
  int at, stage, parity, arriving, arriving_parity;

  __device__ void fetch(const bfloat16* from, int bytes) {
    const unsigned int full = ring.full + 8 * stage;
    if (at >= STAGES) {
      Ring::wait(ring.empty + 8 * stage, parity ^ 1);
    }
    // More under way at once only wait for each other, and all else for them.
    if (UNDER_WAY < STAGES && at >= UNDER_WAY) {
      Ring::wait(ring.full + 8 * arriving, arriving_parity);
      if (++arriving == STAGES) {
        arriving = 0;
        arriving_parity ^= 1;
      }
    }
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
            ring.stages + stage * STAGE_BYTES),
        "l"(from), "r"(bytes), "r"(full), "l"(policy)
        : "memory");
    ++at;
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
  template <typename P, int HALVES>
  __device__ void fetch_all(const bfloat16* matrix) {
    const bfloat16* from[HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      from[half] = matrix + P::place(half);
    }
    for (int pair = P::units() / HALVES; pair > 0; --pair) {
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        fetch(from[half], 2 * P::CHUNK);
        from[half] += P::CHUNK;
      }
    }
  }
};

// The threads that compute.
inline __device__ void together() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// Says that what this block's threads have written is there.
inline __device__ void report(unsigned int* counter) {
  together();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
  }
}

// Until so many have reported: what they have written is seen.
inline __device__ void await(const unsigned int* counter, unsigned int reports) {
  if (threadIdx.x == 0) {
    unsigned int there;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(counter) : "memory");
    } while (there < reports);
  }
  together();
}

// What other blocks may have written is read from where all see it.
inline __device__ Bytes16 fresh16(const void* from) {
  Bytes16 raw;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(raw.word[0]), "=r"(raw.word[1]), "=r"(raw.word[2]), "=r"(raw.word[3])
               : "l"(from)
               : "memory");
  return raw;
}

inline __device__ float fresh(const float* from) {
  float x;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
  return x;
}

inline __device__ float fresh(const bfloat16* from) {
  bfloat16 x;
  asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(x.bits) : "l"(from) : "memory");
  return static_cast<float>(x);
}

inline __device__ float rounded(float x) {
  return static_cast<float>(static_cast<bfloat16>(x));
}

// FEATURES of bfloat16 to shared memory.
template <int FEATURES>
inline __device__ void take(const bfloat16* from, bfloat16* to) {
  for (int at = 8 * threadIdx.x; at < FEATURES; at += 8 * THREADS) {
    *reinterpret_cast<Bytes16*>(to + at) = fresh16(from + at);
  }
  together();
}

// The same, normalized.
inline __device__ void take_normed(const bfloat16* from, const bfloat16* weight, bfloat16* to, float* of_warps) {
  constexpr int EACH = (HIDDEN / 8 + THREADS - 1) / THREADS;
  Bytes16 held[EACH];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int at = 8 * (threadIdx.x + i * THREADS);
    if (at < HIDDEN) {
      held[i] = fresh16(from + at);
      float x[8];
      load8(reinterpret_cast<const bfloat16*>(&held[i]), x);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        squares += x[j] * x[j];
      }
    }
  }
  squares = sum_of_warp(squares);
  if (threadIdx.x % 32 == 0) {
    of_warps[threadIdx.x / 32] = squares;
  }
  together();
  squares = 0.0f;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) {
    squares += of_warps[i];
  }
  const float factor = rsqrtf(squares / HIDDEN + EPS);
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int at = 8 * (threadIdx.x + i * THREADS);
    if (at < HIDDEN) {
      float x[8], scale[8];
      load8(reinterpret_cast<const bfloat16*>(&held[i]), x);
      load8(weight + at, scale);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        scale[j] *= x[j] * factor;
      }
      store8(to + at, scale);
    }
  }
  together();
}

// Sums of the block's units, each by one warp; `at` is the first one's number in the ring.
template <typename P>
inline __device__ void multiply(
    const Ring& ring, const unsigned char* stages, int& at, const bfloat16* x, float* sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int units = P::units();
  for (int unit = (warp + WARPS - at % WARPS) % WARPS; unit < units; unit += WARPS) {
    const bfloat16* weights = reinterpret_cast<const bfloat16*>(stages + (at + unit) % STAGES * STAGE_BYTES);
    const bfloat16* inputs = x + P::chunk_of(unit) * P::CHUNK;
    if (lane == 0) {
      ring.wait_full(at + unit);
    }
    __syncwarp();
    float sum[2] = {0.0f, 0.0f};
#pragma unroll 4
    for (int i = 8 * lane; i < P::CHUNK; i += 256) {
      float weight[8], input[8];
      load8(weights + i, weight);
      load8(inputs + i, input);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        sum[j % 2] += weight[j] * input[j];
      }
    }
    __syncwarp();
    if (lane == 0) {
      ring.give_back(at + unit);
    }
    const float whole = sum_of_warp(sum[0] + sum[1]);
    if (lane == 0) {
      sums[unit] = whole;
    }
  }
  at += units;
  together();
}

// The sum of an output's half, as it would be stored.
template <typename P>
inline __device__ float output_of(const float* sums, int output, int half) {
  float sum = 0.0f;
#pragma unroll
  for (int chunk = 0; chunk < P::CHUNKS; ++chunk) {
    sum += sums[output * P::OF_OUTPUT + chunk * (P::OF_OUTPUT / P::CHUNKS) + half];
  }
  return rounded(sum);
}

// Queries of a key head, that key and that value, [GROUP + 2, DIM]; the first GROUP + 1 normalized, if NORMS, and turned by cosines and sines
// [TURNED / 2]. A warp for each; a lane has some pairs of features that turn together, and some that don't.
inline __device__ void cut_heads(
    const bfloat16* qkv, int key_head, const float* cosines, const float* sines, const bfloat16* query_norm,
    const bfloat16* key_norm, float* heads) {
  constexpr int HALF = TURNED / 2;
  constexpr int PAIRS = (HALF + 31) / 32, OTHERS = (DIM - TURNED + 31) / 32;
  const int lane = threadIdx.x % 32;
  for (int head = threadIdx.x / 32; head < GROUP + 2; head += WARPS) {
    const int row = head < GROUP ? key_head * GROUP + head : QUERIES + (head - GROUP) * KV + key_head;
    const bfloat16* from = qkv + row * DIM;
    float* to = heads + head * DIM;
    // All of them are under way at once.
    float low[PAIRS + 1], high[PAIRS + 1], other[OTHERS + 1];
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) {
      const int i = lane + 32 * j;
      low[j] = i < HALF ? fresh(from + i) : 0.0f;
      high[j] = i < HALF ? fresh(from + i + HALF) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < OTHERS; ++j) {
      const int i = TURNED + lane + 32 * j;
      other[j] = i < DIM ? fresh(from + i) : 0.0f;
    }
    if (head <= GROUP) {
      const bfloat16* scales = head < GROUP ? query_norm : key_norm;
      float factor = 1.0f;
      if (NORMS) {
#pragma unroll
        for (int j = 0; j < PAIRS; ++j) {
          squares += low[j] * low[j] + high[j] * high[j];
        }
#pragma unroll
        for (int j = 0; j < OTHERS; ++j) {
          squares += other[j] * other[j];
        }
        factor = rsqrtf(sum_of_warp(squares) / DIM + HEAD_EPS);
      }
      auto scaled = [&](float x, int i) { return NORMS ? x * factor * static_cast<float>(scales[i]) : x; };
#pragma unroll
      for (int j = 0; j < PAIRS; ++j) {
        const int i = lane + 32 * j;
        if (i < HALF) {
          const float a = scaled(low[j], i), b = scaled(high[j], i + HALF);
          low[j] = rounded(a * cosines[i] - b * sines[i]);
          high[j] = rounded(b * cosines[i] + a * sines[i]);
        }
      }
#pragma unroll
      for (int j = 0; j < OTHERS; ++j) {
        const int i = TURNED + lane + 32 * j;
        other[j] = i < DIM ? rounded(scaled(other[j], i)) : 0.0f;
      }
    }
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) {
      const int i = lane + 32 * j;
      if (i < HALF) {
        to[i] = low[j];
        to[i + HALF] = high[j];
      }
    }
#pragma unroll
    for (int j = 0; j < OTHERS; ++j) {
      const int i = TURNED + lane + 32 * j;
      if (i < DIM) {
        to[i] = other[j];
      }
    }
  }
  together();
}

// Keys and values of the positions that a lane has of those that its warp takes at once.
constexpr int LANES = DIM / 8;
constexpr int AT_ONCE = 32 / LANES;
constexpr int AHEAD = 2;
struct Held {
  Bytes16 key[AHEAD], value[AHEAD];

  // From `base` on, of those before `end`, of which `last` is not held yet.
  __device__ void load(const bfloat16* keys, const bfloat16* values, int base, int end, int last) {
    const int part = threadIdx.x % LANES, which = threadIdx.x % 32 / LANES;
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      const int column = base + a * AT_ONCE + which;
      if (column < end && column != last) {
        key[a] = *reinterpret_cast<const Bytes16*>(keys + (long long)column * DIM + 8 * part);
        value[a] = *reinterpret_cast<const Bytes16*>(values + (long long)column * DIM + 8 * part);
      } else {
        // Past the end, zeros, which count for nothing.
        key[a] = Bytes16{};
        value[a] = Bytes16{};
      }
    }
  }
};

// What GROUP queries see of a share of the positions: weighed sums [GROUP, DIM] and tops [GROUP, 2] of each query, the greatest score (by
// powers of two) and the sum of weights, in `of_block`. The first that it takes are in `held`.
inline __device__ void attend(
    Held& held, const bfloat16* keys, const bfloat16* values, const float* heads, int from, int to, int last,
    float* of_warps, float* of_block) {
  constexpr int OF_WARP = GROUP * (DIM + 2);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = lane % LANES, which = lane / LANES;
  float query[GROUP][8], sum[GROUP][8], top[GROUP], total[GROUP];
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    load8(heads + g * DIM + 8 * part, query[g]);
    top[g] = LEAST;
    total[g] = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      query[g][i] *= SCALE * 1.4426950408889634f;
      sum[g][i] = 0.0f;
    }
  }
  constexpr int STEP = WARPS * AT_ONCE * AHEAD;
  for (int base = from + warp * AT_ONCE * AHEAD; base < to; base += STEP) {
    float key[AHEAD][8], value[AHEAD][8];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      if (base + a * AT_ONCE + which == last) {
        load8(heads + GROUP * DIM + 8 * part, key[a]);
        load8(heads + (GROUP + 1) * DIM + 8 * part, value[a]);
      } else {
        load8(reinterpret_cast<const bfloat16*>(&held.key[a]), key[a]);
        load8(reinterpret_cast<const bfloat16*>(&held.value[a]), value[a]);
      }
    }
    held.load(keys, values, base + STEP, to, last);
    __syncwarp();
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
      float* mine = of_warps + warp * OF_WARP + g * (DIM + 2);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        mine[8 * part + i] = sum[g][i];
      }
      if (part == 0) {
        mine[DIM] = top[g];
        mine[DIM + 1] = total[g];
      }
    }
  }
  together();
  for (int at = threadIdx.x; at < GROUP * DIM; at += THREADS) {
    const int g = at / DIM, i = at % DIM;
    const float* of_head = of_warps + g * (DIM + 2);
    float most = LEAST;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      most = fmaxf(most, of_head[w * OF_WARP + DIM]);
    }
    float all = 0.0f, weighed = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float weight = exp2f(of_head[w * OF_WARP + DIM] - most);
      all += of_head[w * OF_WARP + DIM + 1] * weight;
      weighed += of_head[w * OF_WARP + i] * weight;
    }
    of_block[at] = weighed;
    if (i == 0) {
      of_block[GROUP * DIM + 2 * g] = most;
      of_block[GROUP * DIM + 2 * g + 1] = all;
    }
  }
  together();
}

// What all shares of a key head's positions have, sums [shares, GROUP, DIM] and tops [shares, GROUP, 2] within those of all heads, as
// [GROUP, DIM]. All of it is under way at once, of the first shares.
inline __device__ void join(const float* sums, const float* tops, int shares, float* weights, bfloat16* to) {
  constexpr int EACH = (GROUP * DIM + THREADS - 1) / THREADS;
  constexpr int FIRST = 16;
  constexpr int OF_LANE = (SHARES + 31) / 32;
  float part[EACH][FIRST];
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = threadIdx.x + e * THREADS;
#pragma unroll
    for (int s = 0; s < FIRST; ++s) {
      part[e][s] = i < GROUP * DIM && s < shares ? fresh(sums + s * WIDE + i) : 0.0f;
    }
  }
  const int lane = threadIdx.x % 32;
  for (int g = threadIdx.x / 32; g < GROUP; g += WARPS) {
    float top[OF_LANE], total[OF_LANE];
    float most = LEAST;
#pragma unroll
    for (int j = 0; j < OF_LANE; ++j) {
      const int s = lane + 32 * j;
      top[j] = s < shares ? fresh(tops + s * 2 * QUERIES + 2 * g) : LEAST;
      total[j] = s < shares ? fresh(tops + s * 2 * QUERIES + 2 * g + 1) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < OF_LANE; ++j) {
      most = fmaxf(most, top[j]);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    }
    float all = 0.0f;
#pragma unroll
    for (int j = 0; j < OF_LANE; ++j) {
      top[j] = exp2f(top[j] - most);
      all += top[j] * total[j];
    }
    all = sum_of_warp(all);
#pragma unroll
    for (int j = 0; j < OF_LANE; ++j) {
      const int s = lane + 32 * j;
      if (s < shares) {
        weights[g * SHARES + s] = top[j] / all;
      }
    }
  }
  together();
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const int i = threadIdx.x + e * THREADS;
    if (i < GROUP * DIM) {
      const float* of_head = weights + i / DIM * SHARES;
      float weighed = 0.0f;
#pragma unroll
      for (int s = 0; s < FIRST; ++s) {
        weighed += s < shares ? of_head[s] * part[e][s] : 0.0f;
      }
      for (int s = FIRST; s < shares; ++s) {
        weighed += of_head[s] * fresh(sums + s * WIDE + i);
      }
      to[i] = static_cast<bfloat16>(weighed);
    }
  }
}

// What a layer is given, and where it leaves the token's key and value.
struct Layer {
  const bfloat16 *norm, *qkv, *qkv_bias, *query_norm, *key_norm, *keys, *values, *output, *inner_norm, *gate_up, *down;
  bfloat16 *new_key, *new_value;
};
#define GIVEN(i) \
  const bfloat16 *norm##i, const bfloat16 *qkv##i, const bfloat16 *qkv_bias##i, const bfloat16 *query_norm##i, \
      const bfloat16 *key_norm##i, const bfloat16 *keys##i, const bfloat16 *values##i, const bfloat16 *output##i, \
      const bfloat16 *inner_norm##i, const bfloat16 *gate_up##i, const bfloat16 *down##i
#define LEFT(i) bfloat16 *new_key##i, bfloat16 *new_value##i
#define LAYER(i) \
  {norm##i, qkv##i, qkv_bias##i, query_norm##i, key_norm##i, keys##i, values##i, output##i, inner_norm##i, gate_up##i, \
   down##i, new_key##i, new_value##i}
#define EACH_1(of) of(0)
#define EACH_2(of) EACH_1(of), of(1)
#define EACH_3(of) EACH_2(of), of(2)
#define EACH_4(of) EACH_3(of), of(3)
#define EACH_5(of) EACH_4(of), of(4)
#define EACH_6(of) EACH_5(of), of(5)
#define EACH_7(of) EACH_6(of), of(6)
#define EACH_8(of) EACH_7(of), of(7)
#define JOINED(a, b) a##b
#define EACH_OF(count, of) JOINED(EACH_, count)(of)

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1) lone_blocks(
    const bfloat16* x, const float* periods, unsigned int* turns, EACH_OF(LAYERS, GIVEN), bfloat16* out,
    unsigned int* next_turns, float* scratch, EACH_OF(LAYERS, LEFT), int position, int start, int capacity, int shares) {
  extern __shared__ __align__(128) unsigned char shared[];
  unsigned char* stages = shared;
  bfloat16* input = reinterpret_cast<bfloat16*>(shared + STAGES * STAGE_BYTES);
  float* work = reinterpret_cast<float*>(input);
  float* sums = reinterpret_cast<float*>(shared + STAGES * STAGE_BYTES + WORK_BYTES);
  __shared__ float of_warps[WARPS];
  __shared__ float residual[(HIDDEN + BLOCKS - 1) / BLOCKS];
  __shared__ float cosines[TURNED / 2 + 1], sines[TURNED / 2 + 1];
  __shared__ unsigned int was_last;
  __shared__ alignas(8) unsigned long long barriers[2 * STAGES];
  __shared__ Layer layers[LAYERS];
  const Ring ring = {shared_place(stages), shared_place(barriers), shared_place(barriers + STAGES)};
  if (threadIdx.x == 0) {
    ring.prepare();
    const Layer given[LAYERS] = {EACH_OF(LAYERS, LAYER)};
#pragma unroll
    for (int i = 0; i < LAYERS; ++i) {
      layers[i] = given[i];
    }
  }
  __syncthreads();

  if (threadIdx.x >= THREADS) {
    if (threadIdx.x == THREADS) {
      Fetcher fetcher = {ring, 0, 0, 0, 0, 0, 0};
      asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(fetcher.policy));
      for (const Layer& layer : layers) {
        fetcher.fetch_all<Qkv, 1>(layer.qkv);
        fetcher.fetch_all<Output, 1>(layer.output);
        fetcher.fetch_all<GateUp, 2>(layer.gate_up);
        fetcher.fetch_all<Down, 1>(layer.down);
      }
    }
    return;
  }
  if (blockIdx.x == 0) {
    for (int i = threadIdx.x; i < ALL_COUNTERS; i += THREADS) {
      next_turns[i] = 0;
    }
  }
  bfloat16* qkv = reinterpret_cast<bfloat16*>(scratch + QKV_AT);
  bfloat16* seen = reinterpret_cast<bfloat16*>(scratch + SEEN_AT);
  bfloat16* middle = reinterpret_cast<bfloat16*>(scratch + MIDDLE_AT);
  bfloat16* inner = reinterpret_cast<bfloat16*>(scratch + INNER_AT);
  bfloat16* stream = reinterpret_cast<bfloat16*>(scratch + STREAM_AT);

  // Its part of attention: of a key head, a share of the positions.
  const int key_head = blockIdx.x / shares, share = blockIdx.x % shares;
  const int count = position + 1;
  const int each = (count + shares - 1) / shares;
  const int from = share * each, to = min(count, from + each);
  const long long of_head = ((long long)key_head * capacity + start) * DIM;
  if (key_head < KV) {
    for (int i = threadIdx.x; i < TURNED / 2; i += THREADS) {
      float sine, cosine;
      sincosf(position * (1.0f / periods[i]), &sine, &cosine);
      cosines[i] = cosine * MAGNITUDE;
      sines[i] = sine * MAGNITUDE;
    }
  }
  for (int i = threadIdx.x; i < Output::outputs(); i += THREADS) {
    residual[i] = static_cast<float>(x[Output::feature(i)]);
  }

  int at = 0;
  for (const Layer& layer : layers) {
    const int number = &layer - layers;
    const bool last = number + 1 == LAYERS;
    // What was there before waits for nothing.
    Held held;
    if (key_head < KV) {
      held.load(
          layer.keys + of_head, layer.values + of_head, from + threadIdx.x / 32 * AT_ONCE * AHEAD, to, position);
    }
    take_normed(number == 0 ? x : stream, layer.norm, input, of_warps);
    multiply<Qkv>(ring, stages, at, input, sums);
    for (int i = threadIdx.x; i < Qkv::outputs(); i += THREADS) {
      const int feature = Qkv::feature(i);
      const float bias = BIAS ? static_cast<float>(layer.qkv_bias[feature]) : 0.0f;
      qkv[feature] = static_cast<bfloat16>(output_of<Qkv>(sums, i, 0) + bias);
    }
    report(turns);
    await(turns, BLOCKS);

    if (key_head < KV) {
      float* heads = work;
      float* of_block = heads + (GROUP + 2) * DIM;
      cut_heads(qkv, key_head, cosines, sines, layer.query_norm, layer.key_norm, heads);
      if (share == 0) {
        for (int i = threadIdx.x; i < DIM; i += THREADS) {
          layer.new_key[key_head * DIM + i] = static_cast<bfloat16>(heads[GROUP * DIM + i]);
          layer.new_value[key_head * DIM + i] = static_cast<bfloat16>(heads[(GROUP + 1) * DIM + i]);
        }
      }
      attend(
          held, layer.keys + of_head, layer.values + of_head, heads, from, to, position,
          of_block + GROUP * (DIM + 2), of_block);
      float* all_sums = scratch + SUMS_AT + key_head * GROUP * DIM;
      float* all_tops = scratch + TOPS_AT + 2 * key_head * GROUP;
      for (int i = threadIdx.x; i < GROUP * DIM; i += THREADS) {
        all_sums[share * WIDE + i] = of_block[i];
      }
      for (int i = threadIdx.x; i < 2 * GROUP; i += THREADS) {
        all_tops[share * 2 * QUERIES + i] = of_block[GROUP * DIM + i];
      }
      together();
      if (threadIdx.x == 0) {
        unsigned int before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(turns + MEETINGS + key_head)
                     : "memory");
        was_last = before == shares - 1;
      }
      together();
      // Whoever is the last joins what all have.
      if (was_last) {
        join(all_sums, all_tops, shares, of_block, seen + key_head * GROUP * DIM);
        report(turns + 1);
      }
    }
    await(turns + 1, KV);

    take<WIDE>(seen, input);
    multiply<Output>(ring, stages, at, input, sums);
    for (int i = threadIdx.x; i < Output::outputs(); i += THREADS) {
      residual[i] = rounded(residual[i] + output_of<Output>(sums, i, 0));
      middle[Output::feature(i)] = static_cast<bfloat16>(residual[i]);
    }
    report(turns + 2);
    await(turns + 2, BLOCKS);

    take_normed(middle, layer.inner_norm, input, of_warps);
    multiply<GateUp>(ring, stages, at, input, sums);
    for (int i = threadIdx.x; i < GateUp::outputs(); i += THREADS) {
      const float gate = output_of<GateUp>(sums, i, 0), up = output_of<GateUp>(sums, i, 1);
      float u = gate;
      if (GELU) {
        // x / 2 * (1 + tanh(v)) is x * sigmoid(2 * v).
        u = 1.5957691216057308f * u * (1.0f + 0.044715f * u * u);
      }
      inner[GateUp::feature(i)] = static_cast<bfloat16>(up * (gate / (1.0f + __expf(-u))));
    }
    report(turns + 3);
    await(turns + 3, BLOCKS);

    take<INNER>(inner, input);
    multiply<Down>(ring, stages, at, input, sums);
    bfloat16* to_next = last ? out : stream;
    for (int i = threadIdx.x; i < Down::outputs(); i += THREADS) {
      residual[i] = rounded(residual[i] + output_of<Down>(sums, i, 0));
      to_next[Down::feature(i)] = static_cast<bfloat16>(residual[i]);
    }
    if (!last) {
      report(turns + 4);
      await(turns + 4, BLOCKS);
    }
    turns += COUNTERS;
  }
}
