// Products of one row: who has what of a matrix, and how that comes through shared memory.
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
