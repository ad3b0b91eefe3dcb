// What the GROUP queries of a key head see of its keys and values, [.., DIM], AHEAD positions at a time; AHEAD, GROUP, DIM, THREADS and SCALE are defined
// before. Scores are powers of two, cheaper than those of e, less the greatest so far, so that none overflows (Milakov and Gimelshein,
// arXiv:1805.02867).
constexpr int WARPS = THREADS / 32;
constexpr float LEAST = -1e30f;

// LANES lanes have a position between them, 8 features each; a warp has AT_ONCE positions.
constexpr int LANES = DIM / 8;
constexpr int AT_ONCE = 32 / LANES;

// What a warp has seen of a query: the weighed sum of values, then the greatest score and the sum of weights, in whole 16 bytes.
constexpr int OF_HEAD = DIM + 4;
constexpr int OF_WARP = GROUP * OF_HEAD;

struct Seen {
  float query[GROUP][8], sum[GROUP][8], top[GROUP], total[GROUP];

  // Nothing yet, by queries [GROUP, DIM].
  template <typename Element>
  __device__ explicit Seen(const Element* queries) {
    const int part = threadIdx.x % LANES;
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      load8(queries + g * DIM + 8 * part, query[g]);
      top[g] = LEAST;
      total[g] = 0.0f;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        query[g][i] *= SCALE * 1.4426950408889634f;
        sum[g][i] = 0.0f;
      }
    }
  }

  // Sees more: of the warp's AT_ONCE * AHEAD positions, those before `end`.
  __device__ void add(const float (&key)[AHEAD][8], const float (&value)[AHEAD][8], int end) {
    const int which = threadIdx.x % 32 / LANES;
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
        score[a] = a * AT_ONCE + which < end ? dot : LEAST;
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
        const float weight = a * AT_ONCE + which < end ? exp2f(score[a] - most) : 0.0f;
        total[g] += weight;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          sum[g][i] += weight * value[a][i];
        }
      }
    }
  }

  // Puts what the lanes of a warp have seen together, as OF_WARP floats.
  __device__ void store(float* of_warp) {
    const int lane = threadIdx.x % 32;
    const int part = lane % LANES, which = lane / LANES;
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
        float* mine = of_warp + g * OF_HEAD;
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
  }
};

// A feature of what all warps have seen of a query.
struct SeenByAll {
  float sum, top, total;

  // Of the floats [WARPS, OF_WARP] that they have stored.
  __device__ SeenByAll(const float* of_warps, int head, int feature) : sum(0.0f), top(LEAST), total(0.0f) {
    const float* of_head = of_warps + head * OF_HEAD;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      top = fmaxf(top, of_head[w * OF_WARP + DIM]);
    }
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float weight = exp2f(of_head[w * OF_WARP + DIM] - top);
      total += of_head[w * OF_WARP + DIM + 1] * weight;
      sum += of_head[w * OF_WARP + feature] * weight;
    }
  }
};
