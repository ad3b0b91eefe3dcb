// What the threads of a block do with rows: wait for each other and for other blocks, fetch, normalize, multiply.
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
