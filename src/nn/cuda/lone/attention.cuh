// One query of each head over what is held: heads are cut out, shares of the positions attended to, and joined.
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
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int part = lane % LANES, which = lane / LANES;
  Seen seen(heads);
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
    seen.add(key, value, to - base);
  }
  seen.store(of_warps + warp * OF_WARP);
  together();
  for (int at = threadIdx.x; at < GROUP * DIM; at += THREADS) {
    const int g = at / DIM, i = at % DIM;
    const SeenByAll all(of_warps, g, i);
    of_block[at] = all.sum;
    if (i == 0) {
      of_block[GROUP * DIM + 2 * g] = all.top;
      of_block[GROUP * DIM + 2 * g + 1] = all.total;
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
