// A projection [rows * L, ...] cut into heads: queries [rows, QUERIES, L, DIM], keys and values [rows, KV, L, DIM], the first two
// normalized, if NORMS, and turned by their positions. A warp for each head of each token.
extern "C" __global__ void heads(
    const T* x, const int* positions, const float* periods, const T* query_norm, const T* key_norm, T* queries, T* keys, T* values,
    int len, int width) {
  constexpr int HEADS = QUERIES + 2 * KV;
  constexpr int HALF = TURNED / 2;
  const int lane = threadIdx.x % 32;
  const int head = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
  if (head >= HEADS) {
    return;
  }
  const long long token = blockIdx.x;
  const long long row = token / len;
  const int place = token % len;
  const T* from = x + token * width + head * DIM;
  T* to;
  if (head < QUERIES) {
    to = queries + ((row * QUERIES + head) * len + place) * DIM;
  } else if (head < QUERIES + KV) {
    to = keys + ((row * KV + head - QUERIES) * len + place) * DIM;
  } else {
    to = values + ((row * KV + head - QUERIES - KV) * len + place) * DIM;
  }
  if (head >= QUERIES + KV) {
    for (int i = lane; i < DIM; i += 32) {
      to[i] = from[i];
    }
    return;
  }
  const T* scales = head < QUERIES ? query_norm : key_norm;
  float factor = 1.0f;
  if (NORMS) {
    float squares = 0.0f;
    for (int i = lane; i < DIM; i += 32) {
      const float element = static_cast<float>(from[i]);
      squares += element * element;
    }
    factor = rsqrtf(sum_of_warp(squares) / DIM + EPS);
  }
  auto element = [&](int i) {
    const float plain = static_cast<float>(from[i]);
    return NORMS ? plain * factor * static_cast<float>(scales[i]) : plain;
  };
  const float position = static_cast<float>(positions[token]);
  const float magnitude = MAGNITUDE;
  for (int i = lane; i < HALF; i += 32) {
    float sine, cosine;
    sincosf(position * (1.0f / periods[i]), &sine, &cosine);
    const float a = element(i) * magnitude, b = element(i + HALF) * magnitude;
    to[i] = static_cast<T>(a * cosine - b * sine);
    to[i + HALF] = static_cast<T>(b * cosine + a * sine);
  }
  for (int i = TURNED + lane; i < DIM; i += 32) {
    to[i] = static_cast<T>(element(i));
  }
}
