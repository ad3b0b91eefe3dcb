// sum = x + more, and its root-mean-square normalization by weight: [tokens, WIDTH] each; a block for each token.
extern "C" __global__ void add_norm(
    const T* x, const T* more, const T* weight, T* sum, T* normed) {
  constexpr int EIGHTS = WIDTH / 8;
  constexpr int EACH = (EIGHTS + THREADS - 1) / THREADS;
  const long long row = (long long)blockIdx.x * WIDTH;
  float held[EACH][8];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int at = 8 * (threadIdx.x + i * THREADS);
    if (at < WIDTH) {
      float other[8];
      load8(x + row + at, held[i]);
      load8(more + row + at, other);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        // What is normalized is what is stored.
        held[i][j] = static_cast<float>(static_cast<T>(held[i][j] + other[j]));
        squares += held[i][j] * held[i][j];
      }
      store8(sum + row + at, held[i]);
    }
  }
  __shared__ float warps[32];
  squares = sum_of_warp(squares);
  if (threadIdx.x % 32 == 0) {
    warps[threadIdx.x / 32] = squares;
  }
  __syncthreads();
  squares = 0.0f;
#pragma unroll
  for (int i = 0; i < THREADS / 32; ++i) {
    squares += warps[i];
  }
  const float factor = rsqrtf(squares / WIDTH + EPS);
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int at = 8 * (threadIdx.x + i * THREADS);
    if (at < WIDTH) {
      float scale[8];
      load8(weight + at, scale);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        scale[j] *= held[i][j] * factor;
      }
      store8(normed + row + at, scale);
    }
  }
}
