// The activation of the gate times the other half: x [tokens, 2 * WIDTH], the gate first, to [tokens, WIDTH].
extern "C" __global__ void gate(
    const T* x, T* y, int tokens) {
  const long long at = 8ll * (blockIdx.x * (long long)blockDim.x + threadIdx.x);
  if (at >= 8ll * (tokens * (long long)(WIDTH / 8))) {
    return;
  }
  const long long token = at / WIDTH;
  const T* gates = x + token * WIDTH + at;
  float gate[8], up[8];
  load8(gates, gate);
  load8(gates + WIDTH, up);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float u = gate[i];
    if (GELU) {
      // x / 2 * (1 + tanh(v)) is x * sigmoid(2 * v).
      u = 1.5957691216057308f * u * (1.0f + 0.044715f * u * u);
    }
    up[i] *= gate[i] / (1.0f + __expf(-u));
  }
  store8(y + at, up);
}
