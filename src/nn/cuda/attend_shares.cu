// What attend has left in shares [heads of all rows, shares, DIM], as [heads of all rows, DIM]. A block for each head.
extern "C" __global__ void attend_shares(
    const float* sums, const float* tops, T* out, int shares) {
  const long long head = blockIdx.x;
  float most = -1e30f;
  for (int s = 0; s < shares; ++s) {
    most = fmaxf(most, tops[2 * (head * shares + s)]);
  }
  float all = 0.0f, weighed = 0.0f;
  for (int s = 0; s < shares; ++s) {
    const long long share = head * shares + s;
    const float weight = exp2f(tops[2 * share] - most);
    all += tops[2 * share + 1] * weight;
    weighed += sums[share * DIM + threadIdx.x] * weight;
  }
  out[head * DIM + threadIdx.x] = static_cast<T>(weighed / all);
}
