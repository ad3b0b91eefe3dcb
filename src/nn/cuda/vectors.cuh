// Types of 16 bits, and eight elements at a time as float32. Nothing is included: that would take the compiler seconds.
namespace mlx_chat {

struct bfloat16 {
  unsigned short bits;

  bfloat16() = default;
  __device__ explicit bfloat16(float x) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  }
  __device__ explicit operator float() const {
    return __uint_as_float(static_cast<unsigned int>(bits) << 16);
  }
};

struct float16 {
  unsigned short bits;

  float16() = default;
  __device__ explicit float16(float x) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  }
  __device__ explicit operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};

struct alignas(16) Bytes16 {
  unsigned int word[4];
};

inline __device__ float low_bfloat(unsigned int pair) {
  return __uint_as_float(pair << 16);
}

inline __device__ float high_bfloat(unsigned int pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

inline __device__ void load8(const bfloat16* from, float* to) {
  Bytes16 raw = *reinterpret_cast<const Bytes16*>(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = low_bfloat(raw.word[i]);
    to[2 * i + 1] = high_bfloat(raw.word[i]);
  }
}

inline __device__ void load8(const float16* from, float* to) {
  Bytes16 raw = *reinterpret_cast<const Bytes16*>(from);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float16 low, high;
    low.bits = static_cast<unsigned short>(raw.word[i]);
    high.bits = static_cast<unsigned short>(raw.word[i] >> 16);
    to[2 * i] = static_cast<float>(low);
    to[2 * i + 1] = static_cast<float>(high);
  }
}

inline __device__ void load8(const float* from, float* to) {
  Bytes16 low = reinterpret_cast<const Bytes16*>(from)[0];
  Bytes16 high = reinterpret_cast<const Bytes16*>(from)[1];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[i] = __uint_as_float(low.word[i]);
    to[i + 4] = __uint_as_float(high.word[i]);
  }
}

template <typename T>
inline __device__ void store8(T* to, const float* from) {
  struct alignas(8 * sizeof(T) > 16 ? 16 : 8 * sizeof(T)) Eight {
    T value[8];
  } eight;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    eight.value[i] = static_cast<T>(from[i]);
  }
  *reinterpret_cast<Eight*>(to) = eight;
}

inline __device__ float sum_of_warp(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, step);
  }
  return x;
}

} // namespace mlx_chat

using namespace mlx_chat;
