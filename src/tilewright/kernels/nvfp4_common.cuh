// What the NVFP4 kernels share: the packed layout, the decoder and the instructions they are made of. No header is
// included: NVRTC and nvcc compile these files as they are, for every target from sm_80 up.
//
// Packed layout (layout.py): for each expert, 64-row group and 128-value step of K one chunk of 4,608 bytes:
//   4,096 bytes  codes: [64-value half of K][16-row block][lane] 16 bytes
//     512 bytes  scales: [pair of 16-row blocks][lane] 8 bytes
// Lane (g = lane / 4, t = lane % 4) of a 64-value half holds values 16t .. 16t+15 of two rows, so one scale covers all
// that it holds of a row: the K order inside 64 is permuted alike in both operands, and a sum does not mind.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

static const int BLOCK_K = 128;             // values of K in a step: two 64-value halves
static const int GROUP_BYTES = 4608;        // one chunk: 64 rows x 128 values at 4.5 bits
static const int CODE_BYTES = 4096;

__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// Weights are read once: past L1. `bytes` below 16 fills the rest with zeros and reads nothing past it.
__device__ __forceinline__ void copy16(u32 to, const void *from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy8(u32 to, const void *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy4(u32 to, const void *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ u32 read4(u32 at) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
  return v;
}
__device__ __forceinline__ uint2 read8(u32 at) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
  return v;
}
__device__ __forceinline__ uint4 read16(u32 at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
  return v;
}
__device__ __forceinline__ u32 times(u32 a, u32 b) {
  u32 d;
  asm("{ .reg .b32 z; mov.b32 z, 0x80008000; fma.rn.bf16x2 %0, %1, %2, z; }" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Programmatic dependent launch: a grid that is launched so (launch.py, `overlap`) begins while the one before still
// runs, and each of its thread blocks waits before it touches what that one writes. Without it neither instruction does
// anything.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Eight e2m1 codes of one word as bf16 pairs, times their scales. A code's sign, exponent and mantissa bits stand where
// bf16 has its sign, the low two exponent bits and the top mantissa bit (0x81C0 a half), which makes it the code's value
// times 2^-126, subnormals included. No four shifts of that pattern tile a word; these three and a split fourth do.
__device__ __forceinline__ void decode(u32 (&a)[4], u32 w, u32 s0, u32 s1) {
  const u32 all = 0x81C081C0u, high = 0x01000100u;
  a[0] = times(w & all, s0);
  a[1] = times((w << 6) & all, s1);
  a[2] = times(__funnelshift_r(w, w, 6) & all, s0);
  a[3] = times((__funnelshift_r(w, w, 4) & (all & ~high)) | ((w << 4) & high), s1);
}
// A stored scale byte as a bf16 pair: 5 exponent and 3 mantissa bits above exponent 224, so s becomes s * 2^119 and 255
// is NaN (layout.py makes it so).
__device__ __forceinline__ u32 scale_pair(u32 byte) { return byte * 0x00100010u + 0x70007000u; }

__device__ __forceinline__ u32 bf16_pair(float low, float high) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
