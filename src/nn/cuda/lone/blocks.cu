// The blocks of a decoder one after the other.
// What a layer is given; the token's key and value go to its keys and values.
struct Layer {
  const bfloat16 *norm, *qkv, *qkv_bias, *query_norm, *key_norm;
  bfloat16 *keys, *values;
  const bfloat16 *output, *inner_norm, *gate_up, *down;
};
#define GIVEN(i) \
  const bfloat16 *norm##i, const bfloat16 *qkv##i, const bfloat16 *qkv_bias##i, const bfloat16 *query_norm##i, \
      const bfloat16 *key_norm##i, bfloat16 *keys##i, bfloat16 *values##i, const bfloat16 *output##i, \
      const bfloat16 *inner_norm##i, const bfloat16 *gate_up##i, const bfloat16 *down##i
#define LAYER(i) \
  {norm##i, qkv##i, qkv_bias##i, query_norm##i, key_norm##i, keys##i, values##i, output##i, inner_norm##i, gate_up##i, down##i}

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1) lone_blocks(
    const bfloat16* x, const float* periods, unsigned int* turns, EACH_LAYER(GIVEN), bfloat16* out,
    unsigned int* next_turns, float* scratch, int position, int start, int capacity, int shares) {
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
    const Layer given[LAYERS] = {EACH_LAYER(LAYER)};
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
          const long long place = of_head + (long long)position * DIM + i;
          layer.keys[place] = static_cast<bfloat16>(heads[GROUP * DIM + i]);
          layer.values[place] = static_cast<bfloat16>(heads[(GROUP + 1) * DIM + i]);
        }
      }
      attend(
          held, layer.keys + of_head, layer.values + of_head, heads, from, to, position,
          of_block + OF_WARP, of_block);
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
